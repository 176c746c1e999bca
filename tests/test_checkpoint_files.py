"""HookedTransformer files that are not what they should be: one clear line each, no code run."""

import pytest
import torch

from interp import TransformerConfig, load_transformer_lens, save_transformer_lens
from interp.interop.transformer_lens_save import legacy_config, legacy_state
from tests.scrambled import scrambled

PLAIN = {"n_layers": 1, "d_model": 8, "d_head": 4, "n_ctx": 6, "d_vocab": 5, "act_fn": "gelu"}


def saved(folder, **changes):
    model = scrambled(TransformerConfig(n_layers=1, n_heads=2, d_model=8, d_vocab=5, n_ctx=6))
    path = save_transformer_lens(model, folder / "model.pt")
    state = torch.load(path, weights_only=True)
    for name, x in changes.items():
        name = name.replace("__", ".")
        state = {k: v for k, v in state.items() if k != name} | ({} if x is None else {name: x})
    torch.save(state, path)
    return path


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


def test_wrong_tensors_are_named(tmp_path):
    cases = {
        "embed.W_E is": {"embed__W_E": torch.zeros(4, 8)},
        "wanted a tensor 'unembed.b_U'": {"unembed__b_U": None},
        "no place for blocks.1": {"blocks__1__attn__W_Q": torch.zeros(2, 8, 4)},
        "NaN": {"blocks__0__attn__b_O": torch.full((8,), float("nan"))},
    }
    for message, change in cases.items():
        with pytest.raises(ValueError, match=message) as error:
            load_transformer_lens(saved(tmp_path, **change))
        one_line(error)


def test_missing_biases_become_zeros_only_on_request(tmp_path):
    path = saved(tmp_path, blocks__0__attn__b_Q=None)
    with pytest.raises(ValueError, match="b_Q"):
        load_transformer_lens(path)
    model = load_transformer_lens(path, missing_biases="zero")
    assert not model.blocks[0].attn.b_Q.any()
    assert model.blocks[0].attn.b_K.any()


def test_truncated_file(tmp_path):
    path = saved(tmp_path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="not a whole file") as error:
        load_transformer_lens(path)
    one_line(error)


class Harmful:
    """A pickle that would leave a file behind."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_with_code_is_not_run(tmp_path):
    bad, trace = tmp_path / "bad.pt", tmp_path / "trace"
    torch.save({"embed.W_E": torch.zeros(5, 8), "x": Harmful(trace)}, bad)
    for whole_module, message in ((False, "nothing else is unpickled"), (True, "pickled module")):
        with pytest.raises(ValueError, match=message) as error:
            load_transformer_lens(bad, PLAIN, whole_module=whole_module)
        one_line(error)
    assert not trace.exists()


def test_a_whole_module_gives_its_tensors_and_runs_nothing(tmp_path):
    model = scrambled(TransformerConfig(n_layers=1, n_heads=2, d_model=8, d_vocab=5, n_ctx=6))
    state, config = legacy_state(model), legacy_config(model.config)
    module = torch.nn.Module()
    module.cfg = Config(config | {"dtype": torch.float32})
    module.harm = Harmful(tmp_path / "trace")
    for name, x in state.items():
        *parts, last = name.split(".")
        inner = module
        for part in parts:
            if part not in inner._modules:
                inner.add_module(part, torch.nn.Module())
            inner = inner._modules[part]
        inner.register_buffer(last, x) if "attn" in parts else inner.register_parameter(
            last, torch.nn.Parameter(x)
        )
    torch.save(module, tmp_path / "whole.pth")
    (tmp_path / "trace").unlink(missing_ok=True)
    again = load_transformer_lens(tmp_path / "whole.pth", whole_module=True)
    tokens = torch.tensor([[1, 2, 3]])
    torch.testing.assert_close(again(tokens), model(tokens))
    assert not (tmp_path / "trace").exists()


class Config:
    """Stands for a HookedTransformerConfig: an object with attributes."""

    def __init__(self, values):
        self.__dict__.update(values)


def test_config_that_is_no_json(tmp_path):
    path = saved(tmp_path)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        load_transformer_lens(path)
    path.with_suffix(".json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_transformer_lens(path)
    with pytest.raises(ValueError, match="needs its config"):
        load_transformer_lens(torch.load(path, weights_only=True))


def test_config_that_is_an_object(tmp_path):
    with pytest.raises(TypeError, match=r"cfg\.to_dict"):
        load_transformer_lens(saved(tmp_path), Config({}))
