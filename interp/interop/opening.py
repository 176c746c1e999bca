"""Any of the formats that we read, told apart by what lies in the file."""

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.interop.hugging_face import load_hugging_face
from interp.interop.llama2c import MAGIC, load_llama2c
from interp.interop.mingpt import load_mingpt, load_nanogpt
from interp.interop.tensors import Tensors, read_tensors
from interp.interop.tracr import is_tracr, load_tracr
from interp.interop.transformer_lens import load_transformer_lens
from interp.interop.transformer_lens_config import Legacy
from interp.model import Transformer
from interp.paths import path_of
from interp.runs import load


@dataclass(frozen=True)
class Hints:
    """What a file does not say by itself.

    Attributes:
        config: Of a HookedTransformer checkpoint or a tracr program, where it does not lie beside.
        n_heads: Of a minGPT state dict.
        tokenizer: Of a llama2.c file, where it is not called tok*.bin and beside it.
        step: Of a run of ours, which checkpoint.
        whole_module: The file is a pickled module, to be read without running its code.
        missing_biases: "zero" fills in the biases that a HookedTransformer checkpoint lacks.
    """

    config: Legacy | str | Path | None = None
    n_heads: int | None = None
    tokenizer: str | Path | None = None
    step: int | None = None
    whole_module: bool = False
    missing_biases: str = "refuse"


def open_model(path: str | Path, hints: Hints = Hints()) -> Transformer:  # noqa: B008 (frozen)
    """The model of a file or folder, whichever of `FORMATS` it is.

    Raises:
        FileNotFoundError: There is nothing there.
        TypeError: It is no path.
        ValueError: It is none of them, or broken.
    """
    found = format_of(path, hints)
    if hints.step is not None and found != "interp":
        raise ValueError(f"{path}: a step is of a run, and this is none ({found}); leave step out")
    return FORMATS[found](Path(path), hints)


def format_of(path: str | Path, hints: Hints = Hints()) -> str:  # noqa: B008 (frozen)
    """Which of `FORMATS` a file or folder is.

    Raises:
        FileNotFoundError: There is nothing there.
        TypeError: It is no path.
        ValueError: It is none of them.
    """
    path = path_of(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder")
    if path.is_dir() and (path / "config.json").is_file():
        said = _json(path / "config.json")
        if isinstance(said.get("model"), dict):
            return "interp"
        if "model_type" in said:
            return "hugging_face"
    if is_tracr(path):
        return "tracr"
    if hints.whole_module:
        return "transformer_lens"
    if path.is_file() and _is_llama2c(path):
        return "llama2c"
    return _by_names(path, read_tensors(path))


def _by_names(path: Path, tensors: Tensors) -> str:
    names = set(tensors)
    if "embed.W_E" in names:
        return "transformer_lens"
    if any(name.endswith("wte.weight") for name in names):
        return "nanogpt" if _has_arguments(_one_file(path)) else "mingpt"
    shown = ", ".join(sorted(names)[:3])
    raise ValueError(
        f"{path}: none of the formats that are read ({', '.join(FORMATS)}); its tensors are "
        f"{shown} …"
    )


def _one_file(path: Path) -> Path:
    """The torch file of a folder that has one only; else the path itself."""
    files = [f for kind in ("*.pt", "*.pth", "*.bin") for f in path.glob(kind)]
    return files[0] if path.is_dir() and len(files) == 1 else path


def _has_arguments(path: Path) -> bool:
    import torch

    if path.is_dir() or path.suffix == ".safetensors":
        return False
    loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    return isinstance(loaded, dict) and "model_args" in loaded


def _is_llama2c(path: Path) -> bool:
    """A torch file is a zip or a pickle; a llama2.c file starts with its magic, or its sizes."""
    if path.suffix != ".bin":
        return False
    with path.open("rb") as file:
        raw = file.read(28)
    if len(raw) < 28 or raw[:2] in (b"PK", b"\x80\x02"):
        return False
    first = struct.unpack_from("<I", raw)[0]
    return first == MAGIC or first < 1 << 16


def _json(path: Path) -> dict[str, Any]:
    try:
        said = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    return said if isinstance(said, dict) else {}


def _ours(path: Path, hints: Hints) -> Transformer:
    return load(path, step=hints.step)


def _hugging_face(path: Path, hints: Hints) -> Transformer:
    return load_hugging_face(path)


def _transformer_lens(path: Path, hints: Hints) -> Transformer:
    return load_transformer_lens(
        path,
        hints.config,
        whole_module=hints.whole_module,
        missing_biases=hints.missing_biases,
    )


def _llama2c(path: Path, hints: Hints) -> Transformer:
    beside = sorted(path.parent.glob("tok*.bin"))
    tokenizer = hints.tokenizer or (beside[0] if len(beside) == 1 else None)
    return load_llama2c(path, tokenizer=tokenizer)


def _mingpt(path: Path, hints: Hints) -> Transformer:
    if hints.n_heads is None:
        raise ValueError(
            f"{path}: a minGPT state dict does not tell how many heads; give n_heads "
            "(interp convert IN OUT --heads N makes a folder that tells)"
        )
    return load_mingpt(path, n_heads=hints.n_heads)


def _nanogpt(path: Path, hints: Hints) -> Transformer:
    return load_nanogpt(_one_file(path))


def _tracr(path: Path, hints: Hints) -> Transformer:
    params = path / "params.npz" if path.is_dir() else path
    config = hints.config or params.parent / "config.json"
    if not isinstance(config, Mapping | str | Path):
        raise TypeError(
            f"{path}: a tracr program's config is a dict or JSON, got {type(config).__name__}"
        )
    return load_tracr(params, config)


FORMATS: dict[str, Callable[[Path, Hints], Transformer]] = {
    "interp": _ours,
    "hugging_face": _hugging_face,
    "transformer_lens": _transformer_lens,
    "llama2c": _llama2c,
    "nanogpt": _nanogpt,
    "mingpt": _mingpt,
    "tracr": _tracr,
}
"""What opens each format."""
