"""Files told apart by what lies in them, and `interp convert`."""

import json

import pytest
import torch

from interp import load, load_transformer_lens, save, save_transformer_lens
from interp.cli import run
from interp.config import TransformerConfig
from interp.interop import FORMATS, Hints, format_of, open_model
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
