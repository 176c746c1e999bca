"""Linear attention: φ(x) = elu(x) + 1.

Source: Katharopoulos et al. 2020, "Transformers are RNNs: Fast Autoregressive Transformers with
Linear Attention". Queries and keys are not scaled, as theirs are not.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from interp.attention.features import Featured


@dataclass(frozen=True)
class Linear(Featured):
    """Weights (elu(q) + 1)·(elu(k) + 1): a token costs the same at any length."""

    def of_queries(self, q: Tensor, scale: float) -> Tensor:
        """elu(q) + 1."""
        return F.elu(q) + 1

    def of_keys(self, k: Tensor, scale: float) -> Tensor:
        """elu(k) + 1."""
        return F.elu(k) + 1
