"""Files told apart by what lies in them, and `interp convert`."""

import json
import shutil
from functools import partial

import pytest
import torch

from interp import Run, load, load_seq2seq, load_transformer_lens, save, save_transformer_lens
from interp.cli import run
from interp.config import TransformerConfig
from interp.interop import FORMATS, Hints, format_of, load_tracr, open_model
from tests.hugging_face_models import make
from tests.scrambled import scrambled
from tests.test_small_formats import nano_checkpoint

TOKENS = torch.tensor([[1, 2, 3, 1]])


def small():
    return scrambled(TransformerConfig(n_layers=1, n_heads=2, d_model=8, d_vocab=5, n_ctx=6))


@pytest.fixture
def files(tmp_path, shared):
    """One of each format, with the hints that it needs."""
    save(small(), tmp_path / "ours")
    save_transformer_lens(small(), tmp_path / "hooked.pt")
    make("llama").save_pretrained(tmp_path / "hf")
    nano_checkpoint(tmp_path / "ckpt.pt")
    fixtures = shared / "fixtures"
    return {
        "interp": (tmp_path / "ours", Hints()),
        "hugging_face": (tmp_path / "hf", Hints()),
        "transformer_lens": (tmp_path / "hooked.pt", Hints()),
        "llama2c": (fixtures / "stories260K" / "stories260K.bin", Hints()),
        "nanogpt": (tmp_path / "ckpt.pt", Hints()),
        "mingpt": (
            fixtures / "llmviz_gpt_nano_sort" / "mingpt.safetensors",
            Hints(n_heads=3),
        ),
        "tracr": (fixtures / "tracr_hist", Hints()),
    }


def test_each_format_is_told_apart_and_opens(files):
    assert set(files) == set(FORMATS)
    for name, (path, hints) in files.items():
        assert format_of(path, hints) == name
        assert open_model(path, hints)(torch.tensor([[1, 2, 0, 1]])).isfinite().all()


def test_llama2c_brings_the_tokenizer_beside_it(files):
    model = open_model(*files["llama2c"])
    assert model.to_string(model.to_tokens("Once upon a time", prepend_bos=True)) == (
        "Once upon a time"
    )


def test_convert_into_a_folder_of_ours_and_back(tmp_path, files, capsys):
    path, _ = files["transformer_lens"]
    assert run(["convert", str(path), str(tmp_path / "new"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["format"] == "transformer_lens"
    assert said["written"] == "interp"
    torch.testing.assert_close(load(tmp_path / "new")(TOKENS), small()(TOKENS))
    assert run(["convert", str(tmp_path / "new"), str(tmp_path / "back" / "old.pt")]) == 0
    back = load_transformer_lens(tmp_path / "back" / "old.pt")
    torch.testing.assert_close(back(TOKENS), small()(TOKENS))


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, files, capsys):
    (tmp_path / "junk.pt").write_bytes(b"nothing")
    mingpt, _ = files["mingpt"]
    for arguments, message in (
        (["no-such", "out"], "no such file or folder"),
        ([str(tmp_path / "junk.pt"), "out"], "not a whole file"),
        ([str(mingpt), "out"], "n_heads"),
    ):
        assert run(["convert", *arguments]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1


def test_a_program_of_tracr_opens_by_its_file_and_as_load_tracr_does(shared, tmp_path):
    folder = shared / "fixtures" / "tracr_reverse"
    wanted = load_tracr(folder / "params.npz", folder / "config.json")(TOKENS)
    assert torch.equal(open_model(folder)(TOKENS), wanted)
    assert torch.equal(open_model(folder / "params.npz")(TOKENS), wanted)
    alone = tmp_path / "params.npz"
    shutil.copy(folder / "params.npz", alone)
    with pytest.raises(FileNotFoundError, match="a tracr program's config"):
        open_model(alone)
    assert torch.equal(open_model(alone, Hints(config=folder / "config.json"))(TOKENS), wanted)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="config lacks num_layers"):
        open_model(tmp_path)
    alone.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a whole .npz"):
        open_model(tmp_path)


def test_folders_of_small_formats_open_or_say_what_they_lack(files, shared, tmp_path):
    folder = shared / "fixtures" / "llmviz_gpt_nano_sort"
    assert open_model(folder, Hints(n_heads=3)).config.n_heads == 3
    with pytest.raises(ValueError, match="give n_heads"):
        open_model(folder)
    (tmp_path / "nano").mkdir()
    shutil.copy(files["nanogpt"][0], tmp_path / "nano" / "ckpt.pt")
    assert format_of(tmp_path / "nano") == "nanogpt"
    assert torch.equal(open_model(tmp_path / "nano")(TOKENS), open_model(*files["nanogpt"])(TOKENS))
    with pytest.raises(ValueError, match="a step is of a run"):
        open_model(tmp_path / "nano", Hints(step=3))


@pytest.mark.parametrize("read", [open_model, load, load_seq2seq, Run, partial(save, small())])
def test_paths_that_are_none_are_refused(read, tmp_path):
    for given in (None, 3):
        with pytest.raises(TypeError, match=r"a str or Path; got (None|3)"):
            read(given)
    with pytest.raises(ValueError, match=r"got ''; for the current directory give '\.'"):
        read("")


def test_a_model_is_not_saved_where_a_file_is(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileExistsError, match="wanted a folder to write into.*is a file"):
            save(small(), folder)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_another_format_says_what_reads_it(tmp_path):
    (tmp_path / "config.json").write_text('{"n_layers": 2}')
    with pytest.raises(ValueError, match=r"interp\.interop\.open_model reads other formats"):
        load_seq2seq(tmp_path)


def test_analyze_says_that_steps_are_of_runs_and_how_to_name_heads(files, capsys):
    hooked, mingpt = str(files["transformer_lens"][0]), str(files["mingpt"][0].parent)
    for command, message in ((["--step", "3", hooked], "leave step out"), ([mingpt], "--heads N")):
        assert run(["analyze", *command]) == 2
        assert message in capsys.readouterr().err
