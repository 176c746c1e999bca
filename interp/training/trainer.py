"""The state of a run between two steps, and how a step changes it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from interp.metrics import UNSCORED
from interp.model import Transformer
from interp.runs import MODEL_PREFIX, model_weights
from interp.spectral import folded, one_iteration, reparametrise
from interp.tasks import Batch
from interp.training.clamps import held
from interp.training.data import Draw
from interp.training.honoured import check_device, check_parts
from interp.training.options import TrainingOptions
from interp.training.steering import Listener, rows_in
from interp.training.stopping import SIGNALS
from interp.training.workers import Workers

RAW_PREFIX = "reparametrised."  # of weights as they are trained, where other ones are saved


@dataclass
class Window:
    """What was seen in the steps since the last evaluation, kept on the device until it is read."""

    losses: list[Float[Tensor, ""]] = field(default_factory=list)
    hits: list[Float[Tensor, ""]] = field(default_factory=list)
    penalties: list[Float[Tensor, ""]] = field(default_factory=list)

    def add(self, loss: Tensor, hits: Tensor, penalty: Tensor) -> None:
        """Keep a step's loss, accuracy and penalty."""
        self.losses.append(loss)
        self.hits.append(hits)
        self.penalties.append(penalty)

    def clear(self) -> None:
        """Begin anew."""
        self.losses.clear()
        self.hits.clear()
        self.penalties.clear()

    def means(self) -> tuple[float, float, float] | tuple[None, None, None]:
        """Mean loss, accuracy and penalty of those steps; None before the first."""
        if not self.losses:
            return None, None, None
        loss, hits, penalty = torch.stack(
            [torch.stack(x).mean() for x in (self.losses, self.hits, self.penalties)]
        ).tolist()
        return loss, hits, penalty


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
        workers: Workers,
        compile_model: bool = False,
        micro_batch_size: int | None = None,
        checkpoint_activations: bool = False,
    ) -> None:
        """Begin at step 0.

        Args:
            model: The model; moved to the workers' device.
            draw: Draws a batch.
            options: What decides the weights.
            workers: This process among those that train together.
            compile_model: Run it through torch.compile.
            micro_batch_size: Sequences that are run at a time; their gradients are added up.
            checkpoint_activations: Run blocks again for gradients, in place of keeping all.
        """
        self.micro = options.batch_size if micro_batch_size is None else micro_batch_size
        check_parts(options, size=workers.size, micro=self.micro)
        check_device(options, workers.device)
        self.draw, self.options, self.workers = draw, options, workers
        if options.sigma_reparam and compile_model:
            raise ValueError(
                "sigma_reparam changes its matrices at each step: leave compile_model out"
            )
        if options.sigma_reparam:
            reparametrise(model, seed=model.config.init_seed)
        self.model = model.to(workers.device)
        runs = torch.compile(model, fullgraph=True) if compile_model else model
        self.forward: Any = workers.parallel(cast("torch.nn.Module", runs))
        self.checkpointed = checkpoint_activations
        self.n_rows: dict[tuple[str, int], int] = {}  # of this step's batch, that penalties are of
        self.optimizer = optimizer_of(model, options)
        scaled = options.precision == "float16"
        self.scaler = torch.amp.GradScaler(workers.device.type, enabled=scaled)
        self.generator = torch.Generator().manual_seed(options.seed)
        self.step, self.seconds, self.tokens, self.window = 0, 0.0, 0, Window()
        self.asked = self._flags(0)

    def advance(self, asked: int = 0) -> None:
        """One update of the weights.

        Args:
            asked: The signal that asks this process to stop, or 0; told to all of them in `asked`.
        """
        batch = self.draw(self.options.batch_size, self.generator)
        rate = self.options.learning_rate_at(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        told = torch.cat([self._backward(batch), self._flags(asked)])
        seen = self.workers.summing(told, self.model.parameters())
        if self.options.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        *values, self.asked = seen().tensor_split((1, 2, 3))
        self.window.add(*(value[0] for value in values))
        self.step += 1
        self.tokens += int(batch.mask.sum())

    def _backward(self, batch: Batch) -> Float[Tensor, "3"]:
        """Add the batch's gradient; this process's share of its loss, accuracy and penalty.

        Each part is divided by the whole batch's number of targets: a mean of the parts' means
        would weigh tokens by who they came with.
        """
        scored = max(1, int((batch.targets != UNSCORED).sum()))
        self.n_rows = rows_in(self.options.steer, self.model.config, batch)
        own = self.workers.share(batch)
        parts = [own[at : at + self.micro] for at in range(0, len(own), self.micro)]
        sums = []
        norms = one_iteration(self.model) if self.options.sigma_reparam else nullcontext()
        with norms, self._own_dropout():
            for part in parts[:-1]:
                with self.workers.alone(self.forward):
                    sums.append(self._backward_part(part, scored))
            sums.append(self._backward_part(parts[-1], scored))
        return torch.stack(sums).sum(0) / scored

    def _flags(self, asked: int) -> Float[Tensor, " signal"]:
        """One where this process is asked to stop by a signal."""
        flags = [float(asked == number) for number in SIGNALS]
        return torch.tensor(flags, device=self.workers.device)

    def stopped_by(self) -> int:
        """The signal that some process was asked to stop by at the last step, or 0."""
        counts = zip(SIGNALS, self.asked.tolist(), strict=True)
        return max((number for number, count in counts if count), default=0)

    def _backward_part(self, batch: Batch, scored: int) -> Float[Tensor, "3"]:
        """Add a part's gradient; the sums of its losses and hits, and its penalty likewise."""
        mask = None if bool(batch.mask.all()) else batch.mask.to(self.workers.device)
        batch = batch.to(self.workers.device)
        listener, how = self._steered(batch, mask)
        with self._autocast():
            logits = self.forward(batch.tokens, mask=mask, **how)
        total = F.cross_entropy(
            logits.flatten(0, 1).to(getattr(torch, self.options.loss_precision)),
            batch.targets.flatten(),
            ignore_index=UNSCORED,
            reduction="sum",
        )
        penalty = torch.zeros_like(total) if listener is None else listener.penalty()
        # Gradients are averaged over processes, and what is wanted is their sum.
        aim = total * (self.workers.size / scored)
        if listener is not None:
            aim = aim + penalty * self.workers.size
        self.scaler.scale(aim).backward()
        hits = (logits.detach().argmax(-1) == batch.targets).sum()
        return torch.stack([total.detach(), hits.to(total.dtype), penalty.detach() * scored])

    def _steered(self, batch: Batch, mask: Tensor | None) -> tuple[Listener | None, dict[str, Any]]:
        """What adds up penalties, if any, and what the forward pass is called with besides."""
        config, options = self.model.config, self.options
        listener: Listener | None = None
        how: dict[str, Any] = {"checkpoint_activations": True} if self.checkpointed else {}
        if options.steer:
            listener = Listener(options.steer, config, batch, self.n_rows)
            how["kernel"] = listener
        if options.clamps:
            how["hooks"] = held(options.clamps, config, batch.tokens, mask)
        return listener, how

    def _autocast(self) -> torch.autocast:
        lower = self.options.precision != "float32"
        dtype = getattr(torch, self.options.precision) if lower else None
        return torch.autocast(self.workers.device.type, dtype=dtype, enabled=lower)

    @contextmanager
    def _own_dropout(self) -> Iterator[None]:
        """Dropout knows only the global generator: lend it one of this run, step and process."""
        if not self.model.config.dropout:
            yield
            return
        device = self.workers.device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            seed = (self.options.seed << 32) + (self.workers.rank << 24) + self.step
            seed %= 1 << 64  # what a generator takes
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed(seed)
            yield

    # --- what is saved ------------------------------------------------------------------------

    @property
    def plain(self) -> Transformer:
        """The model as it is saved: without σReparam, if it is trained with that."""
        return folded(self.model) if self.options.sigma_reparam else self.model

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, as tensors by name; and the model to be loaded."""
        state = {MODEL_PREFIX + name: x for name, x in _weights(self.plain).items()}
        if self.options.sigma_reparam:
            state |= {RAW_PREFIX + name: x for name, x in _weights(self.model).items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{index}.{name}": x for name, x in moments.items()}
        state["generator"] = self.generator.get_state()
        if self.scaler.is_enabled():
            scaling = self.scaler.state_dict()
            state["scaler"] = torch.tensor([scaling["scale"], scaling["_growth_tracker"]])
        seen = (self.window.losses, self.window.hits, self.window.penalties)
        state["window"] = torch.stack([torch.stack(x) if x else torch.zeros(0) for x in seen])
        return {name: x.detach().cpu().contiguous() for name, x in state.items()}

    def about(self) -> dict[str, str]:
        """Where it stands, as text beside the state."""
        return {"step": str(self.step), "tokens": str(self.tokens), "seconds": str(self.seconds)}

    def restore(self, state: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
        """Go back to a state that was saved."""
        with torch.no_grad():
            own, raw = self.model.state_dict(), self.options.sigma_reparam
            for name, x in (_raw(state) if raw else model_weights(state)).items():
                own[name].copy_(x)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, x in state.items():
            if name.startswith("optimizer."):
                _, index, moment = name.split(".")
                moments.setdefault(int(index), {})[moment] = x
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.generator.set_state(state["generator"])
        if self.scaler.is_enabled():
            scale, grown = state["scaler"].tolist()
            known = self.scaler.state_dict()
            self.scaler.load_state_dict(known | {"scale": scale, "_growth_tracker": int(grown)})
        losses, hits, *rest = state["window"].to(self.workers.device)
        penalties = rest[0] if rest else torch.zeros_like(losses)  # older states have none
        self.window = Window(list(losses), list(hits), list(penalties))
        self.step, self.tokens = int(about["step"]), int(about["tokens"])
        self.seconds = float(about["seconds"])


def _weights(model: Transformer) -> dict[str, Tensor]:
    tied = {"unembed.weight"} if model.config.tied_embeddings else set()
    return {name: x for name, x in model.state_dict().items() if name not in tied}


def _raw(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights as they are trained under σReparam."""
    return {k.removeprefix(RAW_PREFIX): x for k, x in state.items() if k.startswith(RAW_PREFIX)}


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
