"""Which heads of a transformer do what, and what happens without them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from interp.checkpoint import save
from interp.config import TransformerConfig
from interp.model import Transformer

if TYPE_CHECKING:
    from interp import (
        ablation,
        attention,
        circuits,
        dynamics,
        lens,
        patching,
        plots,
        probes,
        report,
        tasks,
    )
    from interp.checkpoint import load_seq2seq
    from interp.folding import (
        center_unembed,
        center_writing_weights,
        fold_layer_norm,
        fold_value_biases,
    )
    from interp.interop import (
        from_bridge,
        load_hugging_face,
        load_transformer_lens,
        save_transformer_lens,
        to_bridge,
        wrap,
    )
    from interp.runs import Run, load
    from interp.seq2seq import Seq2SeqConfig, Seq2SeqTransformer
    from interp.training import TrainingOptions, TrainingStopped, train

__version__ = "0.1.0"

__all__ = [
    "Run",
    "Seq2SeqConfig",
    "Seq2SeqTransformer",
    "TrainingOptions",
    "TrainingStopped",
    "Transformer",
    "TransformerConfig",
    "ablation",
    "attention",
    "center_unembed",
    "center_writing_weights",
    "circuits",
    "dynamics",
    "fold_layer_norm",
    "fold_value_biases",
    "from_bridge",
    "lens",
    "load",
    "load_hugging_face",
    "load_seq2seq",
    "load_transformer_lens",
    "patching",
    "plots",
    "probes",
    "report",
    "save",
    "save_transformer_lens",
    "tasks",
    "to_bridge",
    "train",
    "wrap",
]

# What is imported when it is first asked for: a name's module; None where the name is a module.
_LATER: dict[str, str | None] = {
    "Run": "interp.runs",
    "Seq2SeqConfig": "interp.seq2seq",
    "Seq2SeqTransformer": "interp.seq2seq",
    "TrainingOptions": "interp.training",
    "TrainingStopped": "interp.training",
    "center_unembed": "interp.folding",
    "center_writing_weights": "interp.folding",
    "fold_layer_norm": "interp.folding",
    "fold_value_biases": "interp.folding",
    "load": "interp.runs",
    "load_seq2seq": "interp.checkpoint",
    "load_transformer_lens": "interp.interop",
    "to_bridge": "interp.interop",
    "from_bridge": "interp.interop",
    "load_hugging_face": "interp.interop",
    "wrap": "interp.interop",
    "save_transformer_lens": "interp.interop",
    "train": "interp.training",
    "ablation": None,
    "circuits": None,
    "dynamics": None,
    "lens": None,
    "patching": None,
    "plots": None,
    "probes": None,
    "report": None,
    "tasks": None,
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    module = _LATER[name]
    if module is None:
        return import_module(f"interp.{name}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
