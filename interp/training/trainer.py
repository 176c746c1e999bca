"""The state of a run between two steps, and how a step changes it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from interp.metrics import UNSCORED
from interp.model import Transformer
from interp.runs import MODEL_PREFIX, model_weights
from interp.tasks import Batch
from interp.training.data import Draw
from interp.training.options import TrainingOptions


@dataclass
class Window:
    """What was seen in the steps since the last evaluation, kept on the device until it is read."""

    losses: list[Float[Tensor, ""]] = field(default_factory=list)
    hits: list[Float[Tensor, ""]] = field(default_factory=list)

    def clear(self) -> None:
        """Begin anew."""
        self.losses.clear()
        self.hits.clear()

    def means(self) -> tuple[float | None, float | None]:
        """Mean loss and accuracy of those steps; None before the first."""
        if not self.losses:
            return None, None
        return float(torch.stack(self.losses).mean()), float(torch.stack(self.hits).mean())


class Trainer:
    """A model in training: its weights, the optimiser, the data's generator, and where it stands.

    The state after a step is all that the next one depends on: dropout draws from a generator
    that is seeded with the step, and the learning rate is a function of it.
    """

    def __init__(
        self,
        model: Transformer,
        draw: Draw,
        options: TrainingOptions,
        *,
        device: torch.device,
        compile_model: bool = False,
    ) -> None:
        self.model, self.draw, self.options, self.device = model.to(device), draw, options, device
        self.forward: Any = torch.compile(model, fullgraph=True) if compile_model else model
        self.optimizer = optimizer_of(model, options)
        self.generator = torch.Generator().manual_seed(options.seed)
        self.step, self.seconds, self.tokens, self.window = 0, 0.0, 0, Window()

    def advance(self) -> None:
        """One update of the weights."""
        batch = self.draw(self.options.batch_size, self.generator)
        rate = self.options.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss, hits = self._backward(batch)
        if self.options.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.window.losses.append(loss)
        self.window.hits.append(hits)
        self.step += 1
        self.tokens += int(batch.mask.sum())

    def _backward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Add the batch's gradient; its loss and accuracy, means over scored targets."""
        scored = max(1, int((batch.targets != UNSCORED).sum()))
        padded = not bool(batch.mask.all())
        batch = batch.to(self.device)
        with self._own_dropout():
            logits = self.forward(batch.tokens, mask=batch.mask if padded else None)
        total = F.cross_entropy(
            logits.flatten(0, 1).float(),
            batch.targets.flatten(),
            ignore_index=UNSCORED,
            reduction="sum",
        )
        loss = total / scored
        loss.backward()
        hits = (logits.detach().argmax(-1) == batch.targets).sum() / scored
        return loss.detach(), hits

    @contextmanager
    def _own_dropout(self) -> Iterator[None]:
        """Dropout knows only the global generator: lend it one of this run and step."""
        if not self.model.config.dropout:
            yield
            return
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            seed = (self.options.seed << 32) + self.step
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed(seed)
            yield

    # --- what is saved ------------------------------------------------------------------------

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, as tensors by name."""
        tied = {"unembed.weight"} if self.model.config.tied_embeddings else set()
        weights = {k: x for k, x in self.model.state_dict().items() if k not in tied}
        state = {MODEL_PREFIX + name: x for name, x in weights.items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{index}.{name}": x for name, x in moments.items()}
        state["generator"] = self.generator.get_state()
        seen = (self.window.losses, self.window.hits)
        state["window"] = torch.stack([torch.stack(x) if x else torch.zeros(0) for x in seen])
        return {name: x.detach().cpu().contiguous() for name, x in state.items()}

    def about(self) -> dict[str, str]:
        """Where it stands, as text beside the state."""
        return {"step": str(self.step), "tokens": str(self.tokens), "seconds": str(self.seconds)}

    def restore(self, state: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Go back to a state that was saved."""
        with torch.no_grad():
            own = self.model.state_dict()
            for name, x in model_weights(state).items():
                own[name].copy_(x)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, x in state.items():
            if name.startswith("optimizer."):
                _, index, moment = name.split(".")
                moments.setdefault(int(index), {})[moment] = x
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.generator.set_state(state["generator"])
        losses, hits = state["window"].to(self.device)
        self.window = Window(list(losses), list(hits))
        self.step, self.tokens = int(about["step"]), int(about["tokens"])
        self.seconds = float(about["seconds"])


def optimizer_of(model: Transformer, options: TrainingOptions) -> torch.optim.AdamW:
    """AdamW, fused where the device has it; matrices decay, gains and biases don't."""
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": options.weight_decay},
        {"params": [w for w in weights if w.dim() <= 1], "weight_decay": 0.0},
    ]
    fused = weights[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=options.learning_rate,
        betas=options.betas,
        fused=fused,
    )
