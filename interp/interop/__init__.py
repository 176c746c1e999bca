"""Models of other libraries: opened as our Transformer, written back, or wrapped as they are."""

from interp.interop.bridge import from_bridge, to_bridge
from interp.interop.hugging_face import load_hugging_face
from interp.interop.llama2c import load_llama2c
from interp.interop.mingpt import load_mingpt, load_nanogpt
from interp.interop.observed import Observed
from interp.interop.opening import FORMATS, Hints, format_of, open_model
from interp.interop.tracr import load_tracr
from interp.interop.transformer_lens import load_transformer_lens
from interp.interop.transformer_lens_save import save_transformer_lens
from interp.interop.wrap import Wrapped, wrap

__all__ = [
    "FORMATS",
    "Hints",
    "Observed",
    "format_of",
    "open_model",
    "Wrapped",
    "from_bridge",
    "load_hugging_face",
    "load_llama2c",
    "load_mingpt",
    "load_nanogpt",
    "load_tracr",
    "load_transformer_lens",
    "save_transformer_lens",
    "to_bridge",
    "wrap",
]
