"""Run a model once, and look at each layer's attention as it is computed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.attention import AttentionCall, AttentionView
from interp.attention.call import per_query_head, without_junk
from interp.attention.kernels import pattern_of
from interp.attention.pairs import pairs_seen
from interp.attention.tiles import MEMORY
from interp.hooks import HookPoint, Hooks, Tap

Progress = Callable[[int, int], None]
"""Told how much is done, and out of how much; it may raise to stop."""


T = TypeVar("T")


def counted(work: Sequence[T], progress: Progress | None) -> Iterator[T]:
    """Each piece of work; after it, what is done is told."""
    for done, piece in enumerate(work, 1):
        yield piece
        if progress is not None:
            progress(done, len(work))


class Config(Protocol):
    """What probes read of a model's config."""

    @property
    def n_layers(self) -> int:
        """Number of blocks."""
        ...

    @property
    def n_heads(self) -> int:
        """Query heads a layer."""
        ...

    @property
    def d_vocab(self) -> int:
        """Number of tokens."""
        ...

    @property
    def n_ctx(self) -> int:
        """Longest sequence."""
        ...

    @property
    def bos_token(self) -> int | None:
        """The token that starts sequences, or None."""
        ...


class Model(Protocol):
    """A model that probes can run: a `Transformer`, or a wrapped one of another library."""

    @property
    def config(self) -> Config:
        """Its sizes."""
        ...

    @property
    def blocks(self) -> Sequence[Any]:
        """Its layers; `blocks[l].attn.W_O` is [H E D]."""
        ...

    @property
    def ln_final(self) -> Any:
        """The norm before the unembedding: `kind` ("layer_norm", …), `weight` [D] or None."""
        ...

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding."""
        ...

    def __call__(self, tokens: Any, **call: Any) -> Any:
        """A forward pass; takes `mask`, `hooks`, `kernel` and `stop_at_layer`."""
        ...


@dataclass(frozen=True)
class Layer:
    """One layer's attention in the middle of a forward pass.

    Attributes:
        index: Which layer.
        call: q, k, v, and who may see whom.
        pattern: Where a hook asked for scores or pattern: as they flowed on, after edits.
    """

    index: int
    call: AttentionCall
    pattern: Float[Tensor, "batch head q k"] | None = None

    def view(self, memory: int) -> AttentionView:
        """Its statistics without the pattern (which is that of q and k, before any edit)."""
        return AttentionView.of(self.call, memory=memory)


@runtime_checkable
class _Known(Protocol):
    """What every model has that probes can run, without computing anything."""

    @property
    def config(self) -> Config: ...

    @property
    def blocks(self) -> Sequence[Any]: ...


def check_model(model: Model) -> None:
    """Refuse what is no model.

    Raises:
        TypeError: It has no layers that a probe could look at.
    """
    if not isinstance(model, _Known) or not hasattr(model.config, "n_layers"):
        raise TypeError(
            "probes run an interp.Transformer, or what interp.wrap(model) makes of a model of "
            f"another library; got {type(model).__name__}"
        )


Look = Callable[[Layer], Tensor]
"""Sees a layer and returns its z, [B H T E]."""


@dataclass
class Watch:
    """A kernel that hands each layer to a function; fused unless a hook wants the pattern."""

    look: Look
    seen: set[int] = field(default_factory=set)

    def __call__(self, call: AttentionCall, tap: Tap) -> Tensor:
        """Compute one layer's attention."""
        pattern = None
        if tap.wants("hook_attn_scores", "hook_pattern"):
            call = without_junk(call)
            pattern = pattern_of(call, tap=tap)
        self.seen.add(call.layer)
        return self.look(Layer(call.layer, call, pattern)).to(call.v.dtype)


def mixed(layer: Layer) -> Float[Tensor, "batch head q d_value"]:
    """The z of a layer whose pattern is at hand."""
    assert layer.pattern is not None
    v = per_query_head(layer.call.v, layer.call.q.shape[1])
    return layer.pattern.to(v.dtype) @ v


def mixed_and_weights(
    layer: Layer,
    keys: Sequence[Int[Tensor, "b q"]],
    *,
    unseen: float = 0.0,
    memory: int = MEMORY,
) -> tuple[Tensor, list[Float[Tensor, "batch head q"]]]:
    """A layer's z, and the weight of one key a query for each of `keys`.

    NaN where the key is −1; `unseen` where the query may not see it.
    """
    if layer.pattern is None:
        view = layer.view(memory)
        run = view.moments(view.call.v)
        view.keep(run.log_sum_exp)
        z, weights = run.mixed[0], [view.weight_at(key, unseen=unseen) for key in keys]
        if layer.call.sink is None:
            return z, weights
        left = left_by_sink(layer.call.sink, run.log_sum_exp)
        return z * left[..., None], [weight * left for weight in weights]
    return mixed(layer), [_weight_of(layer, key[:, None], unseen) for key in keys]


def left_by_sink(
    sink: Float[Tensor, " head"], log_sum_exp: Float[Tensor, "batch head q"]
) -> Float[Tensor, "batch head q"]:
    """The share of a row's weight that goes to keys, beside a sink logit."""
    return torch.sigmoid(log_sum_exp - sink.to(log_sum_exp)[:, None])


def _weight_of(layer: Layer, key: Int[Tensor, "b 1 q"], unseen: float) -> Tensor:
    pattern, at = layer.pattern, key.clamp(min=0)
    assert pattern is not None
    weight = pattern.gather(3, at[..., None].expand(*pattern.shape[:3], 1))[..., 0].float()
    weight = torch.where(pairs_seen(layer.call.visible, at), weight, unseen)
    return weight.masked_fill(key < 0, float("nan"))


@torch.no_grad()
def observe(
    model: Model,
    tokens: Int[Tensor, "batch pos"],
    look: Look,
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    hooks: Hooks = (),
    on_z: Callable[[Tensor, HookPoint], None] | None = None,
) -> None:
    """Run the model with `look` in the place of its attention; nothing is unembedded.

    Args:
        model: Ours or a wrapped one.
        tokens: Token ids.
        look: Computes z of a layer.
        mask: True for real tokens.
        hooks: Run before anything is looked at.
        on_z: Sees each layer's z [B T H E] after the hooks.

    Raises:
        ValueError: A layer has no softmax attention to look at.
    """
    n_layers, watch = model.config.n_layers, Watch(look)
    stop = None if hooks else n_layers
    watched = [("blocks.*.attn.hook_z", on_z)] if on_z is not None else []
    model(tokens, mask=mask, hooks=[*hooks, *watched], kernel=watch, stop_at_layer=stop)
    missed = sorted(set(range(n_layers)) - watch.seen)
    if missed:
        raise ValueError(f"layers {missed} have no softmax attention, so no pattern to look at")
