"""One intervention, in one run from the start: what every sweep has to agree with."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp.attention import KVCache
from interp.hooks import Hooks
from interp.sweeps.clean import absolute_positions, record
from interp.sweeps.edits import Intervention, Slots, hooks_for
from interp.sweeps.examples import Examples
from interp.sweeps.held import held_patterns
from interp.sweeps.subject import evaluating


def run_once(
    model: Any,
    examples: Examples,
    intervention: Intervention,
    *,
    needs: frozenset[str] = frozenset(),
    kv_cache: KVCache | None = None,
    hooks: Hooks = (),
) -> Float[Tensor, "B T V"]:
    """Logits under one intervention.

    Raises:
        ValueError: It reads a clean run, and the KV cache holds the keys of another one.
    """
    how: dict[str, Any] = {"mask": examples.mask}
    with evaluating(model):
        if needs or intervention.holds_patterns:
            if kv_cache is not None:
                raise ValueError(
                    "this kind compares with the clean run, whose keys and values a KV cache does "
                    "not hold; pass all tokens at once, without kv_cache="
                )
            clean = record(model, examples, needs, calls=intervention.holds_patterns, hooks=hooks)
            slots = clean.slots
            how |= held_patterns(clean, [intervention])
        else:
            past = _past(examples, kv_cache)
            slots = Slots(absolute_positions(examples) + past, slice(None), {})
        if kv_cache is not None:
            how["kv_cache"] = kv_cache
        own = hooks_for([intervention], len(examples), slots)
        return model(examples.tokens, hooks=[*hooks, *own], **how)


def _past(examples: Examples, kv_cache: KVCache | None) -> int | Tensor:
    """Real tokens that came before, of each example where they differ."""
    if kv_cache is None or kv_cache.length == 0:
        return 0
    if kv_cache.real is None or not kv_cache.padded:
        return kv_cache.length
    return kv_cache.real.sum(1, keepdim=True)
