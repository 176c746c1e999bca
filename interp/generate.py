"""Sample tokens from anything that reads chunks into a KV cache."""

from collections.abc import Callable

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
        ValueError: The temperature is negative or `top_k` below 1, or a draw has no generator.
    """
    if temperature < 0 or (top_k is not None and top_k < 1):
        raise ValueError(f"temperature must be ≥ 0 and top_k ≥ 1, got {temperature} and {top_k}")
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
    if not isinstance(max_new_tokens, int) or max_new_tokens < 0 or tokens.shape[1] == 0:
        raise ValueError(
            f"wanted a prompt of at least one token and max_new_tokens ≥ 0, "
            f"got {tokens.shape[1]} tokens and {max_new_tokens}"
        )
    chunk = tokens
    for _ in range(max_new_tokens):
        logits = step(chunk)[:, -1]
        chunk = sample(logits, temperature=temperature, top_k=top_k, generator=generator)[:, None]
        tokens = torch.cat([tokens, chunk], 1)
    return tokens
