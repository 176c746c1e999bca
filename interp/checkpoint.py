"""Models as folders: config.json beside model.safetensors, written atomically, read strictly."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.model import Transformer
from interp.paths import made_folder, path_of
from interp.results import write_atomic
from interp.seq2seq import Seq2SeqConfig, Seq2SeqTransformer
from interp.weights import check_own

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
Model = Transformer | Seq2SeqTransformer


def save(model: Model, folder: str | Path, **about: Any) -> Path:
    """Write a model's config and weights; a folder that exists is replaced file by file.

    `interp.load` reads it again, `interp.load_seq2seq` an encoder–decoder.

    Args:
        model: The model.
        folder: Where; made if need be.
        about: Further plain values for config.json.

    Returns:
        The folder.

    Raises:
        FileExistsError: There is a file in its place.
        TypeError: The model is none of ours.
    """
    if not isinstance(model, Seq2SeqTransformer):
        check_own(model)
    folder = made_folder(folder)
    write_weights(model, folder / WEIGHTS)
    described = {"model": model.config.to_dict(), **about}
    write_atomic(folder / CONFIG, json.dumps(described, indent=1) + "\n")
    return folder


def load_seq2seq(folder: str | Path) -> Seq2SeqTransformer:
    """The encoder–decoder that `save` wrote, in eval mode on the CPU.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: It holds another kind of model, or weights do not fit the config.
    """
    described = read_config(folder)["model"]
    if not _is_seq2seq(described):
        raise ValueError(f"{folder} holds no encoder–decoder; interp.load reads it")
    model, path = Seq2SeqTransformer(Seq2SeqConfig.from_dict(described)), Path(folder) / WEIGHTS
    fill(model, read_weights(path), str(path))
    return model.eval()


def decoder_only(described: Mapping[str, Any], where: str | Path) -> TransformerConfig:
    """The config of a `Transformer` as config.json has it.

    Raises:
        ValueError: It is an encoder–decoder's, or no config.
    """
    if _is_seq2seq(described):
        raise ValueError(f"{where} holds an encoder–decoder: interp.load_seq2seq reads it")
    return TransformerConfig.from_dict(described)


def _is_seq2seq(described: Mapping[str, Any]) -> bool:
    return set(described) == {"encoder", "decoder"}


def _tied(model: Model) -> set[str]:
    """Weights that are stored under another name."""
    config = model.config
    ties = config.decoder if isinstance(config, Seq2SeqConfig) else config
    return {"unembed.weight"} if ties.tied_embeddings else set()


def write_weights(model: Model, path: str | Path) -> Path:
    """Write the parameters as safetensors; tied ones once."""
    from safetensors.torch import save as to_bytes

    tied = _tied(model)
    stored = {
        name: weight.detach().contiguous()
        for name, weight in model.state_dict().items()
        if name not in tied
    }
    return write_atomic(path, to_bytes(stored))


def read_config(folder: str | Path) -> dict[str, Any]:
    """What a folder's config.json says.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not JSON with a model in it.
    """
    path = path_of(folder, "a folder") / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: wanted a folder with {CONFIG}, there is none")
    try:
        described = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error}); the file is broken") from error
    if not isinstance(described, dict) or not isinstance(described.get("model"), dict):
        raise ValueError(
            f"{path}: has no model config under 'model'; not written by interp.save or a run "
            "(interp.interop.open_model reads other formats)"
        )
    return described


def load_model(config: TransformerConfig, weights: str | Path) -> Transformer:
    """Build the model and fill in its weights, each of them, and no other.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is broken, or a tensor is missing, unknown or of another shape.
    """
    model = Transformer(config)
    fill(model, read_weights(weights), str(weights))
    return model.eval()


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is broken.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: wanted a safetensors file, there is none")
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a whole safetensors file ({error})") from error


@torch.no_grad()
def fill(model: Model, weights: Mapping[str, Tensor], where: str) -> None:
    """Copy weights into a model; the dtype becomes theirs.

    Raises:
        ValueError: A tensor is missing, unknown or of another shape, each named.
    """
    tied = _tied(model)
    own = {name: x for name, x in model.state_dict().items() if name not in tied}
    wrong = [f"missing {name}" for name in own.keys() - weights.keys()]
    wrong += [f"unknown {name}" for name in weights.keys() - own.keys()]
    wrong += [
        f"{name} is {list(weights[name].shape)}, wanted {list(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if weights[name].shape != own[name].shape
    ]
    if wrong:
        shown = "; ".join(sorted(wrong)[:6]) + (" …" if len(wrong) > 6 else "")
        raise ValueError(f"{where}: weights do not fit the config: {shown}")
    dtypes = {x.dtype for x in weights.values() if x.dtype.is_floating_point}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    for name, stored in model.state_dict().items():
        if name not in tied:
            stored.copy_(weights[name])
