"""Strings for a model that a tokenizer came along with."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from jaxtyping import Int
from torch import Tensor


class Tokenizer(Protocol):
    """Turns text into token ids and back, adding nothing by itself."""

    @property
    def bos_token_id(self) -> int | None:
        """The token that starts sequences, or None."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without BOS."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        ...


class Speaking:
    """What models offer for strings; `tokenizer` may be set to any `Tokenizer`."""

    tokenizer: Any

    def to_tokens(
        self, text: str | Sequence[str], *, prepend_bos: bool = False
    ) -> Int[Tensor, "batch pos"]:
        """Token ids of one text, or of several that are equally long in tokens.

        Args:
            text: One or several.
            prepend_bos: Put the tokenizer's BOS in front. It is never put there by itself.

        Raises:
            ValueError: There is no tokenizer, or it has no BOS; or the texts differ in length.
        """
        tokenizer = self._tokenizer()
        bos = tokenizer.bos_token_id
        if prepend_bos and bos is None:
            raise ValueError("prepend_bos: this tokenizer has no BOS token")
        texts = [text] if isinstance(text, str) else list(text)
        start = [bos] if prepend_bos and bos is not None else []
        rows = [[*start, *tokenizer.encode(one)] for one in texts]
        if len({len(row) for row in rows}) > 1:
            lengths = ", ".join(str(len(row)) for row in rows)
            raise ValueError(
                f"the texts are of {lengths} tokens; give those of one length together"
            )
        return torch.tensor(rows, dtype=torch.long)

    def to_str_tokens(self, tokens: str | Int[Tensor, "*one pos"]) -> list[str]:
        """The text of each token of one sequence.

        Raises:
            ValueError: There is no tokenizer, or more than one sequence.
        """
        tokenizer = self._tokenizer()
        ids = self.to_tokens(tokens) if isinstance(tokens, str) else tokens
        if ids.dim() == 2 and ids.shape[0] != 1:
            raise ValueError(f"wanted one sequence, got {ids.shape[0]}")
        return [tokenizer.decode([int(token)]) for token in ids.flatten()]

    def to_string(self, tokens: Int[Tensor, "*one pos"]) -> str:
        """The text of one sequence.

        Raises:
            ValueError: There is no tokenizer.
        """
        return self._tokenizer().decode([int(token) for token in tokens.flatten()])

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise ValueError(
                "this model came without a tokenizer: set model.tokenizer to an object with "
                "encode(text), decode(tokens) and bos_token_id"
            )
        return self.tokenizer
