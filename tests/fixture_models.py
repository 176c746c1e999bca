"""Third-party weights from the shared folder, as our Transformers."""

from pathlib import Path

from interp import Transformer, load_transformer_lens
from interp.interop import load_tracr


def gbmi_indhead(shared: Path) -> Transformer:
    """A trained two-layer, one-head induction model of 26 letters."""
    return load_transformer_lens(shared / "fixtures" / "gbmi_indhead").requires_grad_(False)


def tracr(shared: Path, program: str) -> Transformer:
    """A compiled program; its logits are the residual stream that comes out."""
    folder = shared / "fixtures" / f"tracr_{program}"
    return load_tracr(folder / "params.npz", folder / "config.json").requires_grad_(False)
