"""One attention function in transformers' public registry, which serves the wrapped calls.

While a wrapped model runs, its config names this function. It knows the call by a context
variable, so that threads and models do not mix: whatever reaches it from elsewhere (the same
model, used directly in another thread) is passed on to what the config named before.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from interp.attention import AttentionCall, Causal, Full, Rule, Visible, Window
from interp.attention.masks import positions_of

NAME = "interp"

Attend = Callable[[AttentionCall, Any], Tensor]
"""Computes z [B H T E] of a layer; the second argument is the module that asks."""


@dataclass
class Running:
    """One call of a wrapped model.

    Attributes:
        config: The model's own config object.
        attend: Computes attention.
        mask: True for real tokens [B T], or None.
    """

    config: Any
    attend: Attend
    mask: Tensor | None = None


@dataclass
class _Switch:
    """A model whose config names us for now, and what it named before."""

    before: str
    users: int = field(default=0)


_running: ContextVar[Running | None] = ContextVar("_running", default=None)
_switches: dict[int, _Switch] = {}
_lock = Lock()


@contextmanager
def observing(model: Any, run: Running) -> Iterator[None]:
    """Serve this model's attention in this thread or task; then all is as it was.

    Raises:
        TypeError: The model's attention does not go through the registry.
    """
    _register()
    _switch(model)
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)
        _switch_back(model)


def _register() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)


def _switch(model: Any) -> None:
    config = model.config
    with _lock:
        if id(config) not in _switches:
            before = config._attn_implementation
            model.set_attn_implementation(NAME)
            if config._attn_implementation != NAME:
                raise bypasses(model)
            _switches[id(config)] = _Switch(before)
        _switches[id(config)].users += 1


def _switch_back(model: Any) -> None:
    with _lock:
        switch = _switches[id(model.config)]
        switch.users -= 1
        if switch.users == 0:
            del _switches[id(model.config)]
            model.set_attn_implementation(switch.before)


def bypasses(model: Any) -> TypeError:
    """The error for an architecture that computes attention on its own."""
    return TypeError(
        f"{type(model).__name__} computes attention without transformers' AttentionInterface, so "
        "it can't be observed; interp.load_hugging_face may know its family"
    )


def attention_function(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: z [B T H E], and no weights."""
    run = _running.get()
    if run is None or module.config is not run.config:
        known = {"sliding_window": sliding_window, "softcap": softcap, "is_causal": is_causal}
        given = {name: x for name, x in known.items() if x is not None} | others
        before = _before(module)
        return before(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **given
        )
    _refuse(type(module).__name__, dropout, others)
    if not isinstance(attention_mask, Visible):
        causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
        attention_mask = _visible_of(attention_mask, query, key, causal, sliding_window)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    call = AttentionCall(query, key, value, attention_mask, scale, None, softcap, 0)
    return run.attend(call, module).transpose(1, 2).contiguous(), None


def _before(module: Any) -> Callable[..., Any]:
    from transformers import AttentionInterface

    switch = _switches.get(id(module.config))
    own = sys.modules[type(module).__module__].eager_attention_forward
    name = "eager" if switch is None else switch.before
    return AttentionInterface().get_interface(name, own)


def _refuse(who: str, dropout: float, others: dict[str, Any]) -> None:
    if dropout:
        raise ValueError(
            f"attention dropout of {dropout} in training mode can't be observed; call model.eval()"
        )
    for name in ("s_aux", "position_bias", "head_mask"):
        if others.get(name) is not None:
            raise ValueError(f"{who} passes {name!r} to its attention, which is not supported")


def mask_function(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    config: Any = None,
    device: Any = "cpu",
    **others: Any,
) -> Any:
    """What transformers calls for each kind of mask: who may see whom, without spelling it out."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask

    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length}
    where = {"q_offset": q_offset, "kv_offset": kv_offset, "device": device}
    asked = {"mask_function": mask_function, "attention_mask": attention_mask, "config": config}
    run = _running.get()
    if run is None or config is not run.config:
        switch = _switches.get(id(config))
        before = ALL_MASK_ATTENTION_FUNCTIONS["sdpa" if switch is None else switch.before]
        return before(**sizes, **where, **asked, **others)
    rule = rule_of(mask_function, getattr(config, "sliding_window", None))
    if rule is not None and not (isinstance(rule, Window) and _has_holes(run.mask)):
        return _visible(rule, q_length, kv_length, run.mask, device)
    others |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    spelled_out = sdpa_mask(**sizes, **where, **asked, **others)
    return _visible(Full(), q_length, kv_length, run.mask, device, spelled_out)


def _visible(
    rule: Rule, n_q: int, n_k: int, real: Tensor | None, device: Any, extra: Tensor | None = None
) -> Visible:
    if real is None:
        k_pos = torch.arange(n_k, device=device)[None]
    else:
        real = real.to(device)
        k_pos = positions_of(real)
    real_q = None if real is None else real[:, n_k - n_q :]
    return Visible(rule, k_pos[:, n_k - n_q :], k_pos, real_q, real, extra, in_order=real is None)


def _has_holes(real: Tensor | None) -> bool:
    """Whether pads stand between real tokens: there a window counts slots, not positions."""
    if real is None:
        return False
    edges = real.int().diff(dim=1)
    return bool(((edges == 1).sum(1) + real[:, 0].int() > 1).any())


def rule_of(function: Any, window: int | None) -> Rule | None:
    """Our rule for one of transformers' mask functions; None for any other.

    Two functions are one where their code and what they captured are.
    """
    from transformers import masking_utils as known

    if function is known.causal_mask_function:
        return Causal()
    if function is known.bidirectional_mask_function:
        return Full()
    if window is None or not _same(function, known.sliding_window_causal_mask_function(window)):
        return None
    return Window(window)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if not callable(a) or not callable(b):
        return a == b
    if a is b:
        return True
    one, other = getattr(a, "__code__", None), getattr(b, "__code__", None)
    if one is None or one is not other:
        return False
    captured = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (a, b)]
    return len(captured[0]) == len(captured[1]) and all(map(_same, *captured))


def _visible_of(
    mask: Tensor | None, query: Tensor, key: Tensor, causal: bool, window: int | None
) -> Visible:
    """From what a model passes that makes its own masks: bools, or 0 and −∞ to be added."""
    n_q, n_k, device = query.shape[2], key.shape[2], query.device
    if mask is None:
        rule: Rule = Full() if not causal else Causal() if window is None else Window(window)
        return _visible(rule, n_q, n_k, None, device)
    if mask.dtype != torch.bool:
        least = torch.finfo(mask.dtype).min / 2
        if not bool(((mask == 0) | (mask <= least)).all()):
            raise ValueError("the model adds a bias to its scores, which is not supported")
        mask = mask == 0
    return _visible(Full(), n_q, n_k, None, device, mask[..., :n_k])
