"""The ways to listen to a model: hooks for a block, a call with hooks, a call with a cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NoReturn, Self

from torch import Tensor

from interp.attention import Kernel, KVCache, attend
from interp.cache import ActivationCache, Anatomy, NamesFilter, names_to_record
from interp.calls import Call, Returns, checked_call, checked_mask
from interp.config import TransformerConfig
from interp.hooks import Hooks, Recorder, Tap, hooks_in_force, listening, resolve
from interp.names import SPLIT_INPUTS, hook_names


class Hooked:
    """What `Transformer` offers beside a plain call. Nothing here outlives the call or block."""

    config: TransformerConfig
    __call__: Callable[..., Any]
    _run: Callable[..., Any]

    def __init__(self) -> None:
        super().__init__()
        self._open_blocks, self._listened_to = 0, False

    def __getstate__(self) -> dict[str, Any]:
        """A copy of the model is outside the blocks that the original stands in."""
        return self.__dict__ | {"_open_blocks": 0, "_listened_to": False}

    def add_hook(self, *_: Any, **__: Any) -> NoReturn:
        """There is no such thing here: a hook belongs to a call, not to the model.

        Raises:
            AttributeError: Always; it says what to write instead.
        """
        raise AttributeError(
            "hooks are not added to a model, so there are none to reset; write "
            "model(tokens, hooks=[(name, fn)]), or `with model.hooks([(name, fn)]):` for several "
            "calls"
        )

    reset_hooks = add_hook

    def hook_names(self) -> list[str]:
        """Every activation that a whole call offers, in order."""
        return hook_names(self.config)

    def _tap(
        self, call: Call, hooks: Hooks, backward: Hooks = (), recorder: Recorder | None = None
    ) -> Tap:
        names = call.hook_names(self.config)
        outer_forward, outer_backward = hooks_in_force(self)
        forward = resolve([*outer_forward, *hooks], names)
        return Tap(forward, resolve([*outer_backward, *backward], names), recorder)

    @contextmanager
    def hooks(self, fwd_hooks: Hooks = (), bwd_hooks: Hooks = ()) -> Iterator[Self]:
        """Give hooks to every call inside the block, in this thread or task only.

        Raises:
            LookupError: A name matches no activation of this model.
        """
        resolve([*fwd_hooks, *bwd_hooks], self.hook_names())
        self._count_blocks(1)
        try:
            with listening(self, fwd_hooks, bwd_hooks):
                yield self
        finally:
            self._count_blocks(-1)

    def _count_blocks(self, change: int) -> None:
        """Compiled code looks at `_listened_to`, so that it notices when a block opens."""
        with _COUNTING:
            self._open_blocks += change
            self._listened_to = self._open_blocks > 0

    def run_with_hooks(
        self,
        tokens: Tensor,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        *,
        mask: Tensor | None = None,
        **call: Any,
    ) -> Any:
        """`model(tokens, hooks=fwd_hooks)`; backward hooks read or replace gradients."""
        if not bwd_hooks:
            return self(tokens, mask=mask, hooks=fwd_hooks, **call)
        with self.hooks(fwd_hooks, bwd_hooks):
            return self(tokens, mask=mask, **call)

    def run_with_cache(
        self,
        tokens: Tensor,
        names_filter: NamesFilter = None,
        *,
        mask: Tensor | None = None,
        hooks: Hooks = (),
        kv_cache: KVCache | None = None,
        return_type: Returns = "logits",
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        kernel: Kernel = attend,
        keep_gradients: bool = False,
    ) -> tuple[Any, ActivationCache]:
        """The call's output, and its activations as they flowed on (after hooks).

        Args:
            tokens: Token ids; this and all that is not named here: as in a plain call.
            names_filter: A name, a glob, several, a predicate, or None for everything but the
                split inputs (`hook_q_input` and its like), which are kept only when named.
            keep_gradients: Leave the entries on the autograd graph; otherwise they are detached.
            mask: True where a token is real.
            hooks: Run before the cache sees an activation.
            kv_cache: Appended to.
            return_type: What the first of the two is.
            start_at_layer: First layer that runs.
            stop_at_layer: The layer whose input is returned.
            kernel: What computes attention.

        Raises:
            LookupError: A name matches nothing that this call computes.
        """
        mask = checked_mask(mask, tokens)
        call = checked_call(
            self.config, tokens, mask, kv_cache, start_at_layer, stop_at_layer, return_type
        )
        names = names_to_record(names_filter, call.hook_names(self.config), SPLIT_INPUTS)
        recorder = Recorder(names, keep_gradients)
        tap = self._tap(call, hooks, recorder=recorder)
        returned = self._run(tap, call, return_type, kernel)
        return returned, ActivationCache(recorder.entries, self._anatomy())

    def _anatomy(self) -> Anatomy:
        config = self.config
        has_mlp = config.d_mlp is not None
        return Anatomy(
            n_layers=config.n_layers,
            has_mlp=has_mlp,
            has_mid=has_mlp and not config.parallel,
            adds_positions=config.positional in ("learned", "sinusoidal"),
            centres=_centres(config.normalization),
            centres_at_end=_centres(config.normalization_at_end),
        )


def _centres(kind: str) -> bool | None:
    return None if kind == "none" else kind.startswith("layer")


_COUNTING = Lock()  # for all models: one inside a model could not be copied with it
