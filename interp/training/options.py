"""How to train: the numbers that decide what comes out, saved with the run."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args

from interp.training.clamps import Clamp
from interp.training.steering import Steer

Schedule = Literal["cosine", "constant"]
Precision = Literal["float32", "bfloat16", "float16"]
LossPrecision = Literal["float32", "float64"]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """What decides a run's weights, beside the model and the task.

    Attributes:
        steps: Updates of the weights.
        batch_size: Sequences an update.
        seed: Of the data and its order, and of dropout. The weights' is the config's `init_seed`.
        learning_rate: AdamW's, at its highest.
        betas: AdamW's decay rates of its averages.
        weight_decay: AdamW's, on matrices and embeddings; gains and biases are not decayed.
        warmup_steps: The learning rate rises over these from 0, in proportion.
        schedule: After that it falls along half a cosine, or stays.
        final_share: Where the cosine ends, as a share of `learning_rate`.
        clip_norm: The gradient is scaled down to this norm where it is longer. None: never.
        evaluate_every: Measure every so many steps, and at each checkpoint.
        evaluation_size: Held-out sequences that are measured.
        checkpoints_per_octave: How many weights are kept between a step and the double of it,
            besides those of round steps (1, 2, … 9 times a power of ten). 0 keeps the last only.
        precision: What the forward pass computes in, by torch.autocast; weights and optimiser stay
            in float32. float16 scales its loss.
        loss_precision: What log-probabilities of the training loss and their sum are computed in,
            whatever `precision` is. float32 can't tell a loss below 1.2e-7 from 0, nor its
            gradient: float64 is for runs that come near. What is measured held out stays in
            float32, penalties of `steer` too.
        sigma_reparam: Matrices of the blocks are trained at a learned spectral norm, 1 at first
            (`interp.spectral`, Zhai et al. 2023); what is saved are plain weights.
        steer: Head statistics that are added to the loss: `Steer`s, or dicts of their fields.
        clamps: What is held through training: `Clamp`s, or dicts of their fields.

    Raises:
        ValueError: A number that can't be, named.
    """

    steps: int = 1000
    batch_size: int = 64
    seed: int = 0
    learning_rate: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    warmup_steps: int = 50
    schedule: Schedule = "cosine"
    final_share: float = 0.1
    clip_norm: float | None = 1.0
    evaluate_every: int = 100
    evaluation_size: int = 128
    checkpoints_per_octave: int = 8
    precision: Precision = "float32"
    loss_precision: LossPrecision = "float32"
    sigma_reparam: bool = False
    steer: tuple[Steer, ...] = ()
    clamps: tuple[Clamp, ...] = ()

    def __post_init__(self) -> None:
        least = {"steps": 1, "batch_size": 1, "evaluate_every": 1, "evaluation_size": 1}
        for name in (*least, "seed", "warmup_steps", "checkpoints_per_octave"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least.get(name, 0):
                raise ValueError(
                    f"{name} must be an integer of at least {least.get(name, 0)}, got {value!r}"
                )
        if self.seed >= 1 << 64:
            raise ValueError(f"seed must be below 2^64, as generators take it, got {self.seed}")
        for name, fits, wanted in _NUMBERS:
            value = getattr(self, name)
            if not (_is_number(value) and fits(value)) and not (
                name == "clip_norm" and value is None
            ):
                raise ValueError(f"{name} must be {wanted}, got {value!r}")
        pair = isinstance(self.betas, tuple) and len(self.betas) == 2
        if not pair or not all(_is_number(beta) and 0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        if not isinstance(self.sigma_reparam, bool):
            raise ValueError(f"sigma_reparam is True or False, got {self.sigma_reparam!r}")
        for name, known in _CHOICES.items():
            if getattr(self, name) not in get_args(known):
                choices = ", ".join(get_args(known))
                raise ValueError(f"{name} is one of {choices}; got {getattr(self, name)!r}")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "TrainingOptions":
        """Build from names and values, lists standing for tuples.

        Raises:
            ValueError: A name is no option, or a value can't be.
        """
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
                raise ValueError(f"training has no option {name!r}{hint}")
        plain = {name: _tuples(value) for name, value in values.items()}
        for name, kind in {"steer": Steer, "clamps": Clamp}.items():
            if name in plain:
                plain[name] = tuple(_entry(name, kind, each) for each in _listed(name, plain[name]))
        return cls(**plain)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def learning_rate_at(self, step: int) -> float:
        """The learning rate of the update that leads from `step` to the next."""
        rise = min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else 1.0
        if self.schedule == "constant":
            return self.learning_rate * rise
        span = max(1, self.steps - self.warmup_steps)
        done = min(1.0, max(0.0, (step - self.warmup_steps) / span))
        fall = self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * done)) / 2
        return self.learning_rate * min(rise, fall)

    def checkpoint_steps(self) -> list[int]:
        """Steps whose weights are kept: first and last, log-spaced ones, and round ones (400)."""
        if not self.checkpoints_per_octave:
            return [self.steps]
        kept = {0, self.steps}
        for k in range(self.checkpoints_per_octave * self.steps.bit_length()):
            kept.add(round(2 ** (k / self.checkpoints_per_octave)))
        for power in range(len(str(self.steps))):
            kept |= {digit * 10**power for digit in range(1, 10)}
        return sorted(step for step in kept if step <= self.steps)

    def evaluation_steps(self) -> list[int]:
        """Steps at which the model is measured."""
        regular = range(0, self.steps + 1, self.evaluate_every)
        return sorted({*self.checkpoint_steps(), *regular, self.steps})


def _is_number(value: object) -> bool:
    """A finite one; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_CHOICES = {"schedule": Schedule, "precision": Precision, "loss_precision": LossPrecision}
_NUMBERS = (
    ("learning_rate", lambda x: x > 0, "a number above 0"),
    ("clip_norm", lambda x: x > 0, "a number above 0, or None"),
    ("weight_decay", lambda x: x >= 0, "a number of at least 0"),
    ("final_share", lambda x: 0 <= x <= 1, "a number in [0, 1]"),
)


Entry = TypeVar("Entry", Steer, Clamp)


def _entry(name: str, kind: type[Entry], given: Any) -> Entry:
    """One of a list's entries, from its fields as a file has them."""
    if isinstance(given, kind):
        return given
    known = [f.name for f in fields(kind)]
    needed = known[: 2 if kind is Steer else 1]
    if (
        not isinstance(given, Mapping)
        or not set(needed) <= set(given)
        or not set(given) <= set(known)
    ):
        raise ValueError(
            f"{name}: an entry has {', '.join(needed)} and maybe some of "
            f"{', '.join(known[len(needed) :])}; got {given!r}"
        )
    return kind(**{field: _tuples(value) for field, value in given.items()})


def _listed(name: str, given: Any) -> tuple[Any, ...]:
    if not isinstance(given, tuple):
        raise ValueError(f"{name} wants a list, one entry each; got {given!r}")
    return given


def _tuples(value: Any) -> Any:
    """Lists, as files have them, as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
