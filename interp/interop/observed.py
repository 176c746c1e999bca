"""A model of another library, observed at its attention: hooks, caches and kernels for it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from jaxtyping import Bool, Int
from torch import Tensor, nn

from interp.attention import AttentionCall, Kernel, attend
from interp.attention.kernels import pattern_of, scores_of
from interp.cache import ActivationCache, Anatomy, NamesFilter, names_to_record
from interp.calls import Returns, check_tokens, checked_mask
from interp.hooks import SILENT, Hooks, Recorder, Tap, hooks_in_force, listening, resolve
from interp.interop.foreign import ForeignBlock
from interp.interop.wrapped_config import WrappedConfig
from interp.metrics import mean_loss, next_token_targets
from interp.text import Speaking


class Observed(Speaking, ABC):
    """A model of another library under the interface that probes and experiments call.

    Hooks reach what its attention passes: `hook_q` and `hook_k` (`hook_rot_q` and `hook_rot_k`
    where the model rotates them before they can be seen), `hook_v`, `hook_attn_scores`,
    `hook_pattern`, `hook_z`.

    Attributes:
        config: What is known of it.
        blocks: Its layers; `blocks[l].attn.W_O` is [H E D].
        tokenizer: Whatever turns text into tokens, or None.
    """

    config: WrappedConfig
    blocks: Sequence[ForeignBlock]
    tokenizer: Any

    @property
    @abstractmethod
    def module(self) -> nn.Module:
        """The model of the other library."""

    @abstractmethod
    def _forward(
        self, tokens: Tensor, mask: Tensor | None, tap: Tap, kernel: Kernel, *, unembed: bool
    ) -> Tensor:
        """Run the model with this tap and kernel at its attention."""

    @property
    def cfg(self) -> WrappedConfig:
        """The config, under the name that TransformerLens gives it."""
        return self.config

    def hook_names(self) -> list[str]:
        """Every activation that a call offers, in order."""
        queries = ["hook_rot_q", "hook_rot_k"] if self.config.rotary else ["hook_q", "hook_k"]
        names = [*queries, "hook_v", "hook_attn_scores", "hook_pattern", "hook_z"]
        layers = range(self.config.n_layers)
        return [f"blocks.{layer}.attn.{name}" for layer in layers for name in names]

    def __call__(
        self,
        tokens: Int[Tensor, "batch pos"],
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        hooks: Hooks = (),
        return_type: Returns = "logits",
        stop_at_layer: int | None = None,
        kernel: Kernel = attend,
    ) -> Any:
        """Logits [B T V], as the model computes them.

        Args:
            tokens: Token ids.
            mask: True where a token is real. Positions count real tokens.
            hooks: Pairs (name or glob, fn(activation, hook)), run in order.
            return_type: "logits"; "loss", the mean over predicted real tokens; or "both".
            stop_at_layer: `n_layers` returns, in the place of logits, what would be unembedded
                (behind the last norm). No other layer can be stopped at.
            kernel: What computes attention, in place of the fused route.

        Raises:
            LookupError: A hook's name matches nothing that the model passes to its attention.
            TypeError: Tokens or mask are of another kind.
            ValueError: The mask does not fit, or the model can't take it; a token is outside of the
                vocabulary; or there are more tokens than positions, unless those are rotations,
                which go on.
        """
        return self._run(self._tap(hooks), tokens, mask, return_type, stop_at_layer, kernel)

    def run_with_hooks(
        self, tokens: Tensor, fwd_hooks: Hooks = (), bwd_hooks: Hooks = (), **call: Any
    ) -> Any:
        """`model(tokens, hooks=fwd_hooks)`; backward hooks read or replace gradients."""
        with self.hooks(fwd_hooks, bwd_hooks):
            return self(tokens, **call)

    @contextmanager
    def hooks(self, fwd_hooks: Hooks = (), bwd_hooks: Hooks = ()) -> Iterator[Self]:
        """Give hooks to every call inside the block, in this thread or task only.

        Raises:
            LookupError: A name matches no activation of this model.
        """
        self._resolved([*fwd_hooks, *bwd_hooks])
        with listening(self, fwd_hooks, bwd_hooks):
            yield self

    def run_with_cache(
        self,
        tokens: Int[Tensor, "batch pos"],
        names_filter: NamesFilter = None,
        *,
        mask: Bool[Tensor, "batch pos"] | None = None,
        hooks: Hooks = (),
        return_type: Returns = "logits",
        stop_at_layer: int | None = None,
        kernel: Kernel = attend,
        keep_gradients: bool = False,
    ) -> tuple[Any, ActivationCache]:
        """The call's output, and its activations as they flowed on; patterns are made when read.

        Raises:
            LookupError: A name matches nothing that the model passes to its attention.
        """
        names = names_to_record(names_filter, self.hook_names())
        recorder = Recorder(names, keep_gradients)
        tap = self._tap(hooks, recorder)
        returned = self._run(tap, tokens, mask, return_type, stop_at_layer, kernel)
        anatomy = Anatomy(
            n_layers=self.config.n_layers,
            has_mlp=False,
            has_mid=False,
            adds_positions=False,
            centres=None,
            centres_at_end=None,
        )
        return returned, ActivationCache(recorder.entries, anatomy)

    def _tap(self, hooks: Hooks, recorder: Recorder | None = None) -> Tap:
        forward, backward = hooks_in_force(self)
        if not (forward or backward or hooks or recorder):
            return SILENT
        return Tap(self._resolved([*forward, *hooks]), self._resolved(backward), recorder)

    def _resolved(self, hooks: Hooks) -> Any:
        for which, _ in hooks:
            last = which.rpartition(".")[2] if isinstance(which, str) else ""
            if self.config.rotary and last in ("hook_q", "hook_k"):
                raise LookupError(
                    f"{which!r}: {self.config.architecture} rotates queries and keys before they "
                    f"can be seen; use {last.replace('hook_', 'hook_rot_')}"
                )
        return resolve(hooks, self.hook_names())

    def _run(
        self,
        tap: Tap,
        tokens: Tensor,
        mask: Tensor | None,
        return_type: Returns,
        stop_at_layer: int | None,
        kernel: Kernel,
    ) -> Any:
        check_tokens(self.config, tokens)
        if tokens.numel() == 0:
            raise ValueError(
                f"wanted at least one sequence of one token, got {list(tokens.shape)}; "
                f"{self.config.architecture} can't run on none"
            )
        if tokens.shape[1] > self.config.n_ctx and not self.config.rotary:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than {self.config.architecture}'s context, "
                f"n_ctx={self.config.n_ctx}; cut the input"
            )
        mask = checked_mask(mask, tokens)
        if stop_at_layer not in (None, self.config.n_layers):
            raise ValueError(
                f"stop_at_layer={stop_at_layer}: a wrapped model runs all its "
                f"{self.config.n_layers} layers"
            )
        logits = self._forward(tokens, mask, tap, kernel, unembed=stop_at_layer is None)
        if return_type == "logits" or stop_at_layer is not None:
            return logits
        loss = mean_loss(logits, next_token_targets(tokens, mask))
        return loss if return_type == "loss" else (logits, loss)


def mixed_by(kernel: Kernel, call: AttentionCall, tap: Tap) -> Tensor:
    """What the kernel makes of a call, and hooks of that: z [B H T E]."""
    if not tap.active:
        return kernel(call, tap)
    tap.later("hook_attn_scores", lambda: scores_of(call))
    tap.later("hook_pattern", lambda: pattern_of(call).to(call.v.dtype))
    return tap("hook_z", kernel(call, tap).transpose(1, 2)).transpose(1, 2)
