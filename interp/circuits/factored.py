"""Products of two thin matrices, read without forming them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FactoredMatrix:
    """The matrix `A @ B`, of rank r at most, by its factors.

    Attributes:
        A: [*batch m r].
        B: [*batch r n].
    """

    A: Float[Tensor, "*batch m r"]
    B: Float[Tensor, "*batch r n"]

    def __post_init__(self) -> None:
        """Refuse factors that can't be multiplied."""
        if self.A.shape[-1] != self.B.shape[-2]:
            raise ValueError(
                f"A [... m r] and B [... r n] must share r, got {list(self.A.shape)} and "
                f"{list(self.B.shape)}"
            )

    @property
    def AB(self) -> Float[Tensor, "*batch m n"]:
        """The product, formed."""
        return self.A @ self.B

    @property
    def T(self) -> "FactoredMatrix":
        """The transpose."""
        return FactoredMatrix(self.B.mT, self.A.mT)

    @property
    def shape(self) -> torch.Size:
        """Of the product."""
        # numpy's: torch's loads sympy, a second, when it is first called
        batch = np.broadcast_shapes(self.A.shape[:-2], self.B.shape[:-2])
        return torch.Size((*batch, self.A.shape[-2], self.B.shape[-1]))

    def __matmul__(self, other: "FactoredMatrix | Tensor") -> "FactoredMatrix":
        if isinstance(other, FactoredMatrix):
            return FactoredMatrix(self.A, self.B @ other.A @ other.B)
        return FactoredMatrix(self.A, self.B @ other)

    def __rmatmul__(self, other: Tensor) -> "FactoredMatrix":
        return FactoredMatrix(other @ self.A, self.B)

    @cached_property
    def eigenvalues(self) -> Complex[Tensor, "*batch r"]:
        """The eigenvalues that may differ from 0: those of the small matrix B A.

        Raises:
            ValueError: The product is not square.
        """
        if self.shape[-1] != self.shape[-2]:
            raise ValueError(f"eigenvalues need a square matrix, this one is {list(self.shape)}")
        return torch.linalg.eigvals((self.B @ self.A).double()).to(torch.complex64)

    @cached_property
    def svd(
        self,
    ) -> tuple[Float[Tensor, "*batch m r"], Float[Tensor, "*batch r"], Float[Tensor, "*batch n r"]]:
        """U, S, V with `A @ B = U @ diag(S) @ V.mT`, from two thin QRs and one small SVD.

        In float32 or better.
        """
        wide = torch.promote_types(self.A.dtype, torch.float32)
        q_a, r_a = torch.linalg.qr(self.A.to(wide))
        q_b, r_b = torch.linalg.qr(self.B.mT.to(wide))
        u, s, vh = torch.linalg.svd(r_a @ r_b.mT, full_matrices=False)
        return q_a @ u, s, q_b @ vh.mT

    @property
    def norm(self) -> Float[Tensor, "*batch"]:
        """The Frobenius norm, from the factors' Gram matrices."""
        squared = ((self.A.mT @ self.A) * (self.B @ self.B.mT).mT).sum((-2, -1))
        return squared.clamp(min=0).sqrt()

    def __repr__(self) -> str:
        return f"FactoredMatrix{list(self.shape)} of rank ≤ {self.A.shape[-1]}"
