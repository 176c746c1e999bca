"""Sample tokens from anything that reads chunks into a KV cache."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor

Step = Callable[[Int[Tensor, "batch pos"]], Float[Tensor, "batch pos d_vocab"]]
"""Reads the next chunk of tokens, remembers it, and returns its logits."""


def sample(
    logits: Float[Tensor, "batch d_vocab"],
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, " batch"]:
    """Pick the next token: the likeliest at temperature 0, else a draw.

    Raises:
        ValueError: The temperature is negative or not finite, `top_k` no count, or a draw has no
            generator.
    """
    warm = isinstance(temperature, Real) and math.isfinite(temperature) and temperature >= 0
    if not warm or (top_k is not None and not (_is_count(top_k) and top_k >= 1)):
        raise ValueError(
            "temperature must be a finite number ≥ 0 and top_k None or an integer ≥ 1, got "
            f"{temperature!r} and {top_k!r}"
        )
    if temperature == 0:
        return logits.argmax(-1)
    if generator is None:
        raise ValueError(
            "sampling at a temperature draws at random: pass generator=torch.Generator()"
            ".manual_seed(...), or temperature=0 for the likeliest token"
        )
    scaled = logits.float() / temperature
    if top_k is not None:
        least = scaled.topk(min(top_k, scaled.shape[-1])).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, float("-inf"))
    return torch.multinomial(scaled.softmax(-1), 1, generator=generator)[:, 0]


def check_request(tokens: Int[Tensor, "batch pos"], max_new_tokens: int) -> None:
    """Refuse to continue nothing, or by what is no count.

    Raises:
        ValueError: `max_new_tokens` is no integer or negative, or the prompt is empty.
    """
    if not _is_count(max_new_tokens) or max_new_tokens < 0 or tokens.shape[1] == 0:
        raise ValueError(
            "wanted a prompt of at least one token and an integer max_new_tokens ≥ 0, "
            f"got {tokens.shape[1]} tokens and {max_new_tokens!r}"
        )


def check_room(n_ctx: int, n_tokens: int, max_new_tokens: int, whose: str = "") -> None:
    """Refuse to go on behind the end of the context.

    Raises:
        ValueError: So many tokens and new ones are more than `n_ctx`.
    """
    longest = n_tokens + max_new_tokens
    if longest > n_ctx:
        raise ValueError(
            f"{n_tokens} tokens and {max_new_tokens} new ones are {longest}, more than {whose}"
            f"n_ctx={n_ctx}; ask for fewer, or, where positions are no weights (rotary, ALiBi, "
            "sinusoidal, none), build the model anew with n_ctx as large as the whole text and "
            "load its weights into that"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def continue_tokens(
    step: Step,
    tokens: Int[Tensor, "batch pos"],
    max_new_tokens: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Int[Tensor, "batch longer"]:
    """`tokens` and what follows them, one token at a time.

    Raises:
        ValueError: `max_new_tokens` is negative, the prompt is empty, or see `sample`.
    """
    check_request(tokens, max_new_tokens)
    chunk = tokens
    for _ in range(max_new_tokens):
        logits = step(chunk)[:, -1]
        chunk = sample(logits, temperature=temperature, top_k=top_k, generator=generator)[:, None]
        tokens = torch.cat([tokens, chunk], 1)
    return tokens
