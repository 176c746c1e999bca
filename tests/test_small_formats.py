"""minGPT, nanoGPT, llama2.c and tracr: opened in one line, computing what they computed."""

import json
import struct

import numpy as np
import pytest
import torch

from interp.interop import load_llama2c, load_mingpt, load_nanogpt, load_tracr
from tests.llmviz import load_llmviz, read_partials
from tests.scrambled import scramble

TRACR = ("frac_prevs", "hist", "length", "reverse")


# --- minGPT and nanoGPT -----------------------------------------------------------------------


def test_llmviz_sorter_has_the_recorded_logits_and_patterns(shared):
    model = load_llmviz(shared)
    reference = np.load(shared / "fixtures" / "llmviz_gpt_nano_sort" / "ref.npz")
    logits, cache = model.run_with_cache(torch.from_numpy(reference["tokens"]))
    # The biases that the file lacks are found to 1e-7: see tests/llmviz.py.
    wanted = torch.from_numpy(reference["logits_f64"])
    torch.testing.assert_close(logits, wanted, atol=1e-5, rtol=0)
    for layer in range(3):
        pattern = torch.from_numpy(reference[f"pattern_L{layer}"]).double()
        torch.testing.assert_close(cache["pattern", layer], pattern, atol=1e-6, rtol=0)


def test_llmviz_parts_are_minGPTs(shared):
    folder = shared / "fixtures" / "llmviz_gpt_nano_sort"
    model = load_mingpt(folder / "mingpt.safetensors", n_heads=3).double()
    recorded = read_partials(shared)
    block = model.blocks[0]
    torch.testing.assert_close(block.attn.o(recorded["y"]), recorded["yProj"], atol=1e-6, rtol=0)
    torch.testing.assert_close(block.mlp.up(recorded["ln2"]), recorded["fc"], atol=1e-6, rtol=0)
    gelu = block.mlp.act(recorded["fc"])
    torch.testing.assert_close(gelu, recorded["gelu"], atol=1e-6, rtol=0)  # erf: 2e-4 off


def nano_checkpoint(path, **config):
    """A scrambled GPT-2 of transformers, written as nanoGPT writes its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 16, "vocab_size": 17}
    theirs = GPT2LMHeadModel(
        GPT2Config(**sizes, activation_function="gelu", bos_token_id=0, eos_token_id=0, **config)
    )
    scramble(theirs)
    state = {}
    for name, x in theirs.state_dict().items():
        turned = name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
        state[f"_orig_mod.{name}"] = x.T.contiguous() if turned else x
    arguments = {"n_head": 4, "n_layer": 2, "bias": True}
    torch.save({"model": state, "model_args": arguments, "iter_num": 3}, path)
    return theirs


def test_nanogpt_checkpoint(tmp_path):
    theirs = nano_checkpoint(tmp_path / "ckpt.pt")
    model = load_nanogpt(tmp_path / "ckpt.pt")
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    torch.testing.assert_close(model(tokens), theirs(tokens).logits, atol=1e-4, rtol=0)
    assert model.config.tied_embeddings
    wrong = load_nanogpt(tmp_path / "ckpt.pt", activation="gelu_tanh")
    assert (wrong(tokens) - model(tokens)).abs().max() > 1e-4


def test_nanogpt_file_without_arguments(tmp_path):
    torch.save({"model": {"wte.weight": torch.zeros(3, 3)}}, tmp_path / "ckpt.pt")
    with pytest.raises(ValueError, match="model_args"):
        load_nanogpt(tmp_path / "ckpt.pt")
    (tmp_path / "ckpt.pt").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match="not a whole checkpoint"):
        load_nanogpt(tmp_path / "ckpt.pt")


# --- llama2.c ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stories(shared):
    return shared / "fixtures" / "stories260K"


def test_stories_continue_as_llama2c_does(stories):
    model = load_llama2c(stories / "stories260K.bin", tokenizer=stories / "tok512.bin")
    reference = np.load(stories / "ref.npz")
    tokens = torch.from_numpy(reference["tokens"])
    logits = model(tokens)
    torch.testing.assert_close(logits, torch.from_numpy(reference["logits"]), atol=1e-4, rtol=0)
    written = model.generate(tokens[:, :1], 200)  # greedy, through the KV cache
    assert torch.equal(written, tokens)
    expected = (stories / "expected_stdout.txt").read_text()
    assert model.tokenizer.decode(written[0].tolist()) == expected.rstrip("\n")


def test_tokenizer_gives_back_the_text_and_the_tokens(stories):
    model = load_llama2c(stories / "stories260K.bin", tokenizer=stories / "tok512.bin")
    text = "Once upon a time, there was a little girl named Lily."
    tokens = model.tokenizer.encode(text)
    recorded = np.load(stories / "ref.npz")["tokens"][0, 1 : len(tokens) + 1]
    assert tokens == recorded.tolist()
    assert model.tokenizer.decode([1, *tokens]) == text
    strange = "\N{SNOWMAN} é\t"
    assert model.tokenizer.decode([1, *model.tokenizer.encode(strange)]) == strange


@pytest.mark.parametrize("shared_head", [True, False])
def test_version_1_of_the_file(stories, tmp_path, shared_head):
    """The layout of llama2.c's export.py: header of 256 bytes, norms first."""
    old = load_llama2c(stories / "stories260K.bin")
    blocks = old.blocks
    qkv = [block.attn.qkv.weight.split([64, 32, 32]) for block in blocks]
    parts = [b.ln1.weight for b in blocks] + [b.ln2.weight for b in blocks]
    parts += [old.ln_final.weight, old.embed.weight]
    parts += [layer[n] for n in range(3) for layer in qkv]
    parts += [b.attn.o.weight for b in blocks]
    parts += [getattr(b.mlp, name).weight for name in ("gate", "down", "up") for b in blocks]
    parts += [] if shared_head else [old.embed.weight * 2]
    header = struct.pack("<Ii7iB", 0x616B3432, 1, 64, 172, 5, 8, 4, 512, 512, shared_head)
    raw = b"".join(x.detach().contiguous().numpy().tobytes() for x in parts)
    path = tmp_path / "v1.bin"
    path.write_bytes(header.ljust(256, b"\0") + raw)
    tokens = torch.tensor([[1, 403, 407, 261]])
    factor = 1 if shared_head else 2
    torch.testing.assert_close(load_llama2c(path)(tokens), factor * old(tokens))


def test_broken_llama2c_files(stories, tmp_path):
    whole = (stories / "stories260K.bin").read_bytes()
    cases = {
        "asks for": whole[:-4],
        "are no llama2": b"abc",
        "not a llama2": b"\xff" * 300,
        "quantised": struct.pack("<Ii", 0x616B3432, 2).ljust(300, b"\0"),
    }
    for message, raw in cases.items():
        path = tmp_path / "broken.bin"
        path.write_bytes(raw)
        with pytest.raises(ValueError, match=message):
            load_llama2c(path)
    nan = bytearray(whole)
    nan[28:32] = struct.pack("<f", float("nan"))
    (tmp_path / "broken.bin").write_bytes(nan)
    with pytest.raises(ValueError, match=r"embed\.weight has 1 entries that are NaN"):
        load_llama2c(tmp_path / "broken.bin")


# --- tracr ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRACR)
def test_compiled_program_has_the_recorded_residual_stream(shared, name):
    folder = shared / "fixtures" / f"tracr_{name}"
    model = load_tracr(folder / "params.npz", folder / "config.json")
    reference = np.load(folder / "ref.npz")
    for case in range(len(json.loads((folder / "config.json").read_text())["inputs"])):
        tokens = torch.from_numpy(reference[f"in{case}_tokens"])[None]
        logits, cache = model.run_with_cache(tokens)
        for layer in range(model.config.n_layers):
            for part, which in (("resid_mid", 2 * layer), ("resid_post", 2 * layer + 1)):
                wanted = torch.from_numpy(reference[f"in{case}_L{which}_resid"])
                # 0 on most machines: the sums are of exact numbers. Where matrix products round in
                # another order, summands of about 16 leave their last bit, 2e-6.
                torch.testing.assert_close(cache[part, layer][0], wanted, atol=4e-6, rtol=0)
            scores = torch.from_numpy(reference[f"in{case}_L{layer}_attnlogits"])
            torch.testing.assert_close(cache["attn_scores", layer][0], scores, atol=0, rtol=0)
        assert torch.equal(logits, cache["resid_post", -1])


def test_compiled_program_says_what_it_should(shared):
    folder = shared / "fixtures" / "tracr_reverse"
    config = json.loads((folder / "config.json").read_text())
    model = load_tracr(folder / "params.npz", config)
    labels = config["residual_labels"]
    letters = {label.removeprefix("reverse_1:"): n for n, label in enumerate(labels)}
    for given, wanted in zip(config["inputs"], config["decoded"], strict=True):
        tokens = torch.tensor([[config["input_encoding"][x] for x in ("BOS", *given)]])
        best = model(tokens)[0][:, [letters[x] for x in "abcd"]].argmax(-1)
        assert ["BOS", *("abcd"[int(n)] for n in best[1:])] == wanted
