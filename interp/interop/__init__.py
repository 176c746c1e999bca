"""Models of other libraries: opened as our Transformer, written back, or wrapped as they are."""

from interp.interop.transformer_lens import load_transformer_lens
from interp.interop.transformer_lens_save import save_transformer_lens

__all__ = ["load_transformer_lens", "save_transformer_lens"]
