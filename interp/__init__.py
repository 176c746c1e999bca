"""Which heads of a transformer do what, and what happens without them."""

from interp.checkpoint import save
from interp.config import TransformerConfig
from interp.model import Transformer

__version__ = "0.1.0"

__all__ = ["Transformer", "TransformerConfig", "save"]
