"""llama2.c's tokenizer: pieces with scores, merged best first (byte-pair encoding)."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BYTES_FROM = 3
"""Tokens 3 … 258 stand for single bytes; 0, 1 and 2 for unknown, begin and end."""


@dataclass(frozen=True)
class Llama2cTokenizer:
    """Text to tokens and back, as llama2.c does it.

    Source: llama2.c's run.c (Karpathy 2023), after SentencePiece (Kudo & Richardson 2018).
    """

    pieces: tuple[bytes, ...]
    scores: tuple[float, ...]
    bos_token_id: int | None = 1

    @classmethod
    def read(cls, path: str | Path, n_tokens: int) -> "Llama2cTokenizer":
        """From a `tok*.bin` or `tokenizer.bin` file.

        Raises:
            FileNotFoundError: There is no such file.
            ValueError: It does not hold as many tokens.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: wanted a llama2.c tokenizer, there is none")
        raw, at = path.read_bytes(), 4
        pieces, scores = [], []
        try:
            for _ in range(n_tokens):
                score, length = struct.unpack_from("<fi", raw, at)
                scores.append(score)
                pieces.append(raw[at + 8 : at + 8 + length])
                at += 8 + length
        except struct.error as error:
            raise ValueError(
                f"{path}: wanted {n_tokens} tokens, it ends after {len(pieces)}"
            ) from error
        return cls(tuple(pieces), tuple(scores))

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, without BOS."""
        known = {piece: token for token, piece in reversed(list(enumerate(self.pieces)))}
        tokens = [known[b" "]] if text and b" " in known else []
        for character in text:
            raw = character.encode()
            whole = known.get(raw)
            tokens += [byte + BYTES_FROM for byte in raw] if whole is None else [whole]
        while (best := self._best_merge(tokens, known)) is not None:
            at, token = best
            tokens[at : at + 2] = [token]
        return tokens

    def _best_merge(self, tokens: list[int], known: dict[bytes, int]) -> tuple[int, int] | None:
        merges = (
            (self.scores[token], -at, token)
            for at, (a, b) in enumerate(zip(tokens, tokens[1:], strict=False))
            if (token := known.get(self.pieces[a] + self.pieces[b])) is not None
        )
        best = max(merges, default=None)
        return None if best is None else (-best[1], best[2])

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; a space after BOS is dropped."""
        raw, after_bos = b"", False
        for token in tokens:
            piece = self._bytes(token)
            raw += piece[1:] if after_bos and piece.startswith(b" ") else piece
            after_bos = token == self.bos_token_id
        return raw.decode(errors="replace")

    def _bytes(self, token: int) -> bytes:
        if BYTES_FROM <= token < BYTES_FROM + 256:
            return bytes([token - BYTES_FROM])
        return b"" if token == self.bos_token_id else self.pieces[token]
