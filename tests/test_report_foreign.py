"""A report on a model that is no run of ours: it is shown what it says itself."""

import json

import pytest
import torch

from interp import TransformerConfig, probes, report, save
from interp.cli import run
from interp.report import foreign, subject_at
from interp.tasks import Batch
from tests.hugging_face_models import make, save_with_tokenizer
from tests.scrambled import scrambled


def test_a_hugging_face_folder_is_analysed_on_its_own_samples(tmp_path, capsys):
    save_with_tokenizer(make("llama", max_position_embeddings=20), tmp_path / "model")
    out = tmp_path / "out"
    command = ["analyze", str(tmp_path / "model"), "--out", str(out), "--no-progress", "--json"]
    assert run(command) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"]
    page = (out / "index.html").read_text()
    assert "sampled from the model itself" in page
    assert "held-out" not in " ".join(said["verdict"])


def test_samples_start_with_bos_and_are_the_same_each_time(tmp_path):
    save_with_tokenizer(make("llama"), tmp_path)
    one, two = subject_at(tmp_path), subject_at(tmp_path)
    assert torch.equal(one.batch.tokens, two.batch.tokens)
    assert (one.batch.tokens[:, 0] == 0).all()
    assert not torch.equal(one.batch.tokens, one.reference.tokens)
    assert one.labels[2:4] == ("once", "upon")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"attention": "full"}, "this model sees ahead and predicts no next token"),
        ({"d_vocab_out": 7}, "this model gives 7 labels for 5 tokens and predicts no next token"),
    ],
)
def test_a_model_that_predicts_no_next_token_is_refused(tmp_path, fields, said):
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_vocab": 5, "n_ctx": 6}
    save(scrambled(TransformerConfig(**sizes, **fields)), tmp_path)
    with pytest.raises(ValueError, match=said):
        subject_at(tmp_path)


@pytest.mark.parametrize("named", ["tracr_hist", "tracr_length/params.npz"])
def test_a_program_of_tracr_is_refused_in_one_line_that_says_what_to_ask(named, shared, capsys):
    assert run(["analyze", str(shared / "fixtures" / named)]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert "a program of tracr gives" in said
    assert "interp.probes.head_statistics(model, tokens)" in said


def test_samples_of_one_token_are_told_from_others():
    says = torch.tensor([[1, 2, 2, 2], [3, 3, 3, 3], [1, 2, 3, 4]])
    ones = torch.ones_like(says, dtype=torch.bool)
    assert foreign.says_one_token(Batch(says, ones, says))
    assert not foreign.says_one_token(Batch(says[1:], ones[1:], says[1:]))


@pytest.mark.parametrize(("length", "least"), [(8, 2), (15, 2), (16, 8), (64, 8)])
def test_short_sequences_let_every_row_count_for_near_uniform(length, least):
    assert probes.least_keys(torch.ones(2, length, dtype=torch.bool)) == least


def test_a_path_without_a_model_says_what_is_missing(tmp_path, capsys):
    assert run(["analyze", str(tmp_path / "nothing")]) == 2
    assert "config.json" in capsys.readouterr().err
    assert report.subject_at is subject_at


def test_one_earlier_head_is_spoken_of_in_the_singular(shared, tmp_path):
    found = report.analyze(shared / "fixtures" / "gbmi_indhead")
    said = report.verdict(found)
    assert said[0].startswith("L1H0 is an induction head: 0.9")
    assert said[1].startswith("It stands on L0H0, which puts 0.7")
    assert said[1].endswith("it tells the others where to look, not what to say.")
    assert said[2].startswith("Cut alone, the edge into the keys of an induction head costs 0.6")
    # It says one token over and over, and its sequences have 8 keys: both would mislead.
    subject = found.subject
    assert subject.shown == "repeated random tokens"
    assert all(len(row.unique()) > 2 for row in subject.batch.tokens)
    assert found.statistics.min_keys == 2
    assert found.statistics.near_uniform() == []
    assert "No head of the 2 is near-uniform." in said
    assert "samples" not in " ".join(said)
    page = report.write(found, tmp_path).read_text()
    assert "sequences, of repeated random tokens." in page
    assert "Which earlier heads do the induction heads read?" in page
