"""Hugging Face models into our Transformer: config and tensors translated, all or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.interop.assembly import assemble
from interp.interop.families import FAMILIES
from interp.interop.tensors import Reader, Tensors, read_tensors
from interp.model import Transformer

BUFFERS = (
    "*.attn.bias",
    "*.attn.masked_bias",
    "*.attention.bias",
    "*.attention.masked_bias",
    "*.rotary_emb.inv_freq",
)
"""Constants that old checkpoints carry; they follow from the config."""


def load_hugging_face(
    source: str | Path | Any,
    *,
    revision: str | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Transformer:
    """A model that computes what the Hugging Face model computes, with all our hooks inside.

    The config's fields act, or are refused by name. Weights are read one by one from mapped files.
    A tokenizer beside the weights comes along, and takes strings (`model.to_tokens`).

    Args:
        source: A folder, the name of a model on the hub, or a transformers model in memory.
        revision: Of a model on the hub: a branch, tag or commit.
        dtype: Of the weights. None: as stored.
        device: Where the model is made.

    Raises:
        FileNotFoundError: There is no such folder, and no such name can be reached.
        ValueError: The family or a field is not supported; or tensors do not fit; or what is no
            name of the hub has a revision.
    """
    if revision is not None and (not isinstance(source, str | Path) or Path(source).is_dir()):
        raise ValueError(f"only models of the hub have revisions; leave revision={revision!r} out")
    if isinstance(source, str | Path):
        folder = _folder(source, revision)
        theirs, tensors = _config_in(folder), read_tensors(folder)
    else:
        folder = None
        theirs, tensors = source.config, _tensors_of(source)
    tensors = tensors.without_prefix("transformer.", "gpt_neox.", "model.decoder.", "model.")
    config, recipes = config_and_recipes(theirs, tensors)
    model = assemble(config, recipes, where=tensors.where, dtype=dtype, device=device)
    again = ("lm_head.weight", "embed_out.weight") if theirs.tie_word_embeddings else ()
    tensors.check_all_taken([*BUFFERS, *again])
    if folder is not None:
        model.tokenizer = read_tokenizer(folder)
    return model


def config_and_recipes(
    theirs: Any, tensors: Tensors
) -> tuple[TransformerConfig, dict[str, Reader]]:
    """Our config for a transformers config, and how to fill it.

    Raises:
        ValueError: The family or a field is not supported.
    """
    kind = theirs.model_type
    if kind not in FAMILIES:
        raise ValueError(
            f"{tensors.where}: models of type {kind!r} are not supported ({', '.join(FAMILIES)}); "
            "interp.wrap may take it as it is"
        )
    values = theirs.to_dict()
    config, recipes = FAMILIES[kind](values, tensors)
    bos = values.get("bos_token_id")
    if isinstance(bos, int) and 0 <= bos < config.d_vocab:
        config = replace(config, bos_token=bos)
    return config, recipes


def _tensors_of(model: Any) -> Tensors:
    from transformers import PreTrainedModel

    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"wanted a folder, a name, or a transformers model, got {type(model).__name__}"
        )
    found: dict[str, Tensor | Reader] = dict(model.state_dict())
    return Tensors(found, type(model).__name__)


def _folder(source: str | Path, revision: str | None) -> Path:
    """The folder itself, or a download of the name."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    wanted = ["*.json", "*.safetensors", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(str(source), revision=revision, allow_patterns=wanted))
    except (OSError, ValueError, HfHubHTTPError) as error:
        first = str(error).strip().splitlines()[0]
        at = "" if revision is None else f"@{revision}"
        raise FileNotFoundError(
            f"{source}{at}: no such folder, and no such model within reach on the hub ({first})"
        ) from error


def _config_in(folder: Path) -> Any:
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder}: wanted a Hugging Face model, there is no config.json")
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{folder / 'config.json'}: not a config that is known ({first})"
        ) from error


@dataclass(frozen=True)
class HuggingFaceTokenizer:
    """A transformers tokenizer that adds nothing by itself."""

    tokenizer: Any

    @property
    def bos_token_id(self) -> int | None:
        """The token that starts sequences, or None."""
        return self.tokenizer.bos_token_id

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids, special ones shown."""
        return self.tokenizer.decode(list(tokens))


def read_tokenizer(folder: Path) -> HuggingFaceTokenizer | None:
    """The tokenizer beside the weights, or None where there is none."""
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
        return None
    from transformers import AutoTokenizer

    return HuggingFaceTokenizer(AutoTokenizer.from_pretrained(folder))
