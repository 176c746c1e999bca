"""Circuits: a model in which only some edges carry the base run, and the others the source's."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.hooks import Hook, Hooks
from interp.patching.edges import PARTS, Graph, sender_names, written
from interp.patching.pairs import Ends
from interp.sweeps import SITES, Progress, evaluating
from interp.sweeps.examples import measured
from interp.sweeps.memory import budget_of
from interp.sweeps.planner import shared_out


def circuit_values(
    model: Any,
    graph: Graph,
    ends: Ends,
    kept: Bool[Tensor, "circuit sender receiver"],
    *,
    hooks: Hooks = (),
    memory: int | None = None,
    progress: Progress | None = None,
) -> Float[Tensor, "circuit B"]:
    """The metric of each circuit: edges that are not kept carry what the source run sent."""
    examples, n = ends.base, len(ends.base)
    with evaluating(model):
        sent = _source_writes(model, graph, ends, hooks)
        found, done = [], 0
        for some in kept.split(_most(model, graph, ends, memory)):
            m = len(some)
            mask = None if examples.mask is None else examples.mask.repeat(m, 1)
            own = Exchange(graph, sent, ~some & graph.edges().to(some.device)).hooks()
            under = [*shared_out(hooks, n), *own]
            logits = model(examples.tokens.repeat(m, 1), mask=mask, hooks=under)
            found += [measured(ends.measure, part, examples) for part in logits.split(n)]
            done += m
            if progress is not None:
                progress(done, len(kept))
    return torch.stack(found)


def _source_writes(
    model: Any, graph: Graph, ends: Ends, hooks: Hooks
) -> Float[Tensor, "sender B T d_model"]:
    source, names = ends.source, sender_names(graph)
    _, cache = model.run_with_cache(source.tokens, names, mask=source.mask, hooks=hooks)
    return written(graph, cache)


def _most(model: Any, graph: Graph, ends: Ends, memory: int | None) -> int:
    """Circuits at a time: each holds what every sender writes, and an input a head."""
    budget = budget_of(model, ends.base, memory, splits=False)
    return max(1, budget.interventions // max(1, len(graph.senders) // 8))


class Exchange:
    """Hooks that take what dropped edges carry out of their receivers' inputs.

    What a sender writes now, less what it wrote in the source run, is subtracted from what each
    receiver reads of it over a dropped edge.
    """

    def __init__(
        self,
        graph: Graph,
        sent: Float[Tensor, "sender B T d_model"],
        dropped: Bool[Tensor, "circuit sender receiver"],
    ) -> None:
        self.graph, self.sent = graph, sent
        self.dropped = dropped.to(sent.device, sent.dtype)
        self.surplus: list[Tensor] = []  # of the senders so far, [circuit B T D]

    def hooks(self) -> list[tuple[str, Hook]]:
        """In the order of the forward pass."""
        return list(self._hooks())

    def _hooks(self) -> Iterator[tuple[str, Hook]]:
        graph = self.graph
        yield SITES["resid"].format(0), self._write([0])
        for layer in range(graph.n_layers):
            heads = graph.heads_at(layer)
            for part in PARTS:
                reads = range(*graph.readers_at(layer, part).indices(1 << 30))
                yield SITES[f"{part}_input"].format(layer), self._read(list(reads))
            senders = list(range(heads.start, heads.stop))
            yield f"blocks.{layer}.attn.hook_result", self._write(senders)
            if graph.has_mlp:
                yield SITES["mlp_in"].format(layer), self._read([graph.mlp_reads_at(layer)])
                yield SITES["mlp_out"].format(layer), self._write([graph.mlp_at(layer)])
        yield SITES["final"].format(graph.n_layers - 1), self._read([-1])

    def _write(self, senders: Sequence[int]) -> Hook:
        def note(x: Tensor, _: object) -> None:
            by_circuit = x.unflatten(0, (len(self.dropped), -1))
            parts = by_circuit.unbind(4 - 1) if x.ndim == 4 else [by_circuit]
            for sender, now in zip(senders, parts, strict=True):
                self.surplus.append(now - self.sent[sender])

        return note

    def _read(self, receivers: Sequence[int]) -> Hook:
        def take_out(x: Tensor, _: object) -> Tensor:
            share = self.dropped[:, : len(self.surplus), receivers]
            surplus = torch.stack(self.surplus)
            taken = torch.einsum("mur,umbtd->mbtrd", share, surplus).flatten(0, 1)
            return x - (taken if x.ndim == 4 else taken[:, :, 0])

        return take_out
