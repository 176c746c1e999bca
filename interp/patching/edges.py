"""The graph of a model: who writes into the residual stream, and who reads it.

A sender is the input (embeddings), a head or an MLP; a receiver is a head's q, k or v, an MLP or
the logits. An edge from each sender to each receiver above it carries what the sender writes.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.model import Transformer
from interp.sweeps import SITES
from interp.sweeps.subject import check_runnable

PARTS = ("q", "k", "v")


@dataclass(frozen=True)
class Graph:
    """Senders and receivers of one model, in the order of the forward pass.

    Attributes:
        n_layers: Blocks.
        n_heads: Query heads a layer.
        kv_heads: Key/value heads a layer.
        has_mlp: Whether blocks have MLPs.
        parallel: Whether a block's MLP reads what its heads read.
    """

    n_layers: int
    n_heads: int
    kv_heads: int
    has_mlp: bool
    parallel: bool

    @property
    def senders(self) -> tuple[str, ...]:
        """They are `input`, `L0H0` …, `mlp0`, and so on."""
        names = ["input"]
        for layer in range(self.n_layers):
            names += [f"L{layer}H{head}" for head in range(self.n_heads)]
            names += [f"mlp{layer}"] if self.has_mlp else []
        return tuple(names)

    @property
    def receivers(self) -> tuple[str, ...]:
        """They are `L0H0.q` …, `L0H0.k` …, `mlp0` …, `logits`; k and v count key/value heads."""
        names = []
        for layer in range(self.n_layers):
            for part in PARTS:
                names += [f"L{layer}H{head}.{part}" for head in range(self.n_readers(part))]
            names += [f"mlp{layer}"] if self.has_mlp else []
        return (*names, "logits")

    def n_readers(self, part: str) -> int:
        """Heads of a layer that read through q, k or v."""
        return self.n_heads if part == "q" else self.kv_heads

    def heads_at(self, layer: int) -> slice:
        """Where a layer's heads stand among the senders."""
        start = 1 + layer * self._senders_a_layer
        return slice(start, start + self.n_heads)

    def mlp_at(self, layer: int) -> int:
        """Where a layer's MLP stands among the senders."""
        return self.heads_at(layer).stop

    def readers_at(self, layer: int, part: str) -> slice:
        """Where a layer's q, k or v stand among the receivers."""
        start = layer * self._receivers_a_layer
        for before in PARTS[: PARTS.index(part)]:
            start += self.n_readers(before)
        return slice(start, start + self.n_readers(part))

    def mlp_reads_at(self, layer: int) -> int:
        """Where a layer's MLP stands among the receivers."""
        return (layer + 1) * self._receivers_a_layer - 1

    @property
    def _senders_a_layer(self) -> int:
        return self.n_heads + self.has_mlp

    @property
    def _receivers_a_layer(self) -> int:
        return self.n_heads + 2 * self.kv_heads + self.has_mlp

    def edges(self) -> Bool[Tensor, "sender receiver"]:
        """True where a receiver sees what a sender wrote."""
        seen = torch.zeros(len(self.senders), len(self.receivers), dtype=torch.bool)
        seen[:, -1] = True
        for layer in range(self.n_layers):
            below = self.heads_at(layer).start
            for part in PARTS:
                seen[:below, self.readers_at(layer, part)] = True
            if self.has_mlp:
                seen[: below if self.parallel else self.mlp_at(layer), self.mlp_reads_at(layer)] = (
                    True
                )
        return seen


def graph_of(model: Any) -> Graph:
    """The graph of a model.

    Raises:
        TypeError: There is no model to run.
        ValueError: Its parts can't be told apart.
    """
    check_parts(model, "edges need what each part reads")
    config = model.config
    has_mlp = config.d_mlp is not None
    return Graph(config.n_layers, config.n_heads, config.kv_heads, has_mlp, config.parallel)


def check_parts(model: Any, needed: str) -> None:
    """Refuse a model whose parts' reads and writes can't be told apart.

    Raises:
        TypeError: There is no model to run.
        ValueError: It is wrapped, which does not offer what is `needed`; or what its heads write
            is normalised together.
    """
    check_runnable(model)
    if not isinstance(model, Transformer):
        raise ValueError(f"{needed}, which a wrapped model does not offer")
    if model.config.post_normalization != "none":
        raise ValueError("this model normalises what attention writes: no head has its own write")


def sender_names(graph: Graph) -> list[str]:
    """The activations that hold what senders write."""
    names = [SITES["resid"].format(0)]
    for layer in range(graph.n_layers):
        names.append(f"blocks.{layer}.attn.hook_result")
        names += [SITES["mlp_out"].format(layer)] if graph.has_mlp else []
    return names


def receiver_names(graph: Graph) -> list[str]:
    """The activations that receivers read, in the order of the forward pass."""
    names = []
    for layer in range(graph.n_layers):
        names += [SITES[f"{part}_input"].format(layer) for part in PARTS]
        names += [SITES["mlp_in"].format(layer)] if graph.has_mlp else []
    return [*names, SITES["final"].format(graph.n_layers - 1)]


def written(graph: Graph, cache: Any) -> Float[Tensor, "sender B T d_model"]:
    """What each sender writes."""
    parts = [cache[SITES["resid"].format(0)]]
    for layer in range(graph.n_layers):
        parts += cache[f"blocks.{layer}.attn.hook_result"].unbind(2)
        parts += [cache[SITES["mlp_out"].format(layer)]] if graph.has_mlp else []
    return torch.stack(parts)


def by_receiver(graph: Graph, named: dict[str, Tensor]) -> Float[Tensor, "receiver B T d_model"]:
    """Tensors at what receivers read, one for each receiver."""
    parts: list[Tensor] = []
    for name in receiver_names(graph):
        x = named[name]
        parts += x.unbind(2) if x.ndim == 4 else [x]
    return torch.stack(parts)
