"""Every head over the checkpoints of a run, one checkpoint in memory at a time."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.ablation import sweep
from interp.circuits import composition_scores, copying_score
from interp.dynamics.revisions import Revisions, version_of
from interp.model import Transformer
from interp.probes import head_statistics, induction_scores, pattern_divergence
from interp.results import Result, plain, write_atomic
from interp.runs import Run, checkpoint_path

Progress = Callable[[int, int], None]

STATISTICS = (
    "induction",
    "previous_token",
    "duplicate_token",
    "sink",
    "entropy",
    "normalized_entropy",
    "mean_distance",
    "write_norm",
    "copying",
    "k_composition",
    "ablation",
    "kl_to_final",
)
"""What `over_checkpoints` can follow; `induction` is on repeats that it draws itself."""

_OF_ONE_PASS = STATISTICS[1:8]


class Checkpoints(Protocol):
    """A run, or anything with models at steps: `Revisions`, say."""

    @property
    def path(self) -> Path:
        """Where results are kept beside the run."""
        ...

    @property
    def steps(self) -> list[int]:
        """The steps that have a model, in order."""
        ...

    def load(self, step: int) -> Any:
        """The model at a step."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory(Result):
    """Head statistics at each checkpoint: [step, layer, head]; NaN where a head has none.

    Attributes:
        induction: Attention to what followed earlier occurrences, on repeats of random tokens.
        previous_token: And the next seven: as `probes.head_statistics` has them, on the tokens.
        copying: Eigenvalue copying score.
        k_composition: The largest K-composition with a later head, less that of random matrices.
        ablation: Loss without the head less loss, nats.
        kl_to_final: KL from the head's pattern at the last step to this one, nats.
        steps: The checkpoints.
    """

    axes: ClassVar = dict.fromkeys(STATISTICS, ("step", "layer", "head"))
    coordinates: ClassVar = {"step": "steps"}

    induction: Tensor | None
    previous_token: Tensor | None
    duplicate_token: Tensor | None
    sink: Tensor | None
    entropy: Tensor | None
    normalized_entropy: Tensor | None
    mean_distance: Tensor | None
    write_norm: Tensor | None
    copying: Tensor | None
    k_composition: Tensor | None
    ablation: Tensor | None
    kl_to_final: Tensor | None
    steps: tuple[int, ...]


def over_checkpoints(
    run: Checkpoints | Sequence[str | Path],
    tokens: Int[Tensor, "batch pos"],
    *,
    mask: Bool[Tensor, "batch pos"] | None = None,
    repeats: Int[Tensor, "n length"] | None = None,
    statistics: Sequence[str] = ("induction", "previous_token", "normalized_entropy"),
    steps: Sequence[int] | None = None,
    cache: bool = True,
    progress: Progress | None = None,
) -> Trajectory:
    """Follow head statistics through training.

    What was computed is kept in `dynamics/` of the run's folder, a file a checkpoint: a call that
    was stopped goes on where it was, and a second one only reads. Other tokens, other statistics,
    or a checkpoint that was written again, are computed anew. A list's is `revisions-HASH/` in the
    folder that holds the checkpoints; `Revisions(…, path=…)` puts it elsewhere.

    Args:
        run: A `Run`; a list of Hugging Face folders, or what else `Revisions` takes; or anything
            with `path`, `steps` and `load(step)`; also `version(step)`, if its models can change.
        tokens: What statistics are taken on; ablation asks for the next token.
        mask: True for real tokens.
        repeats: What induction is taken on: repeated blocks of tokens that training had; bytes of
            text, say, are few of 256. None: blocks of any tokens, drawn anew.
        statistics: Which, of `STATISTICS`.
        steps: Which checkpoints; None: all.
        cache: Keep results there, and read them.
        progress: Called with (done, total); may raise to cancel.

    Raises:
        FileNotFoundError: A folder of the list is not there.
        TypeError: The run is none, or the steps are no list.
        ValueError: A statistic or a step is unknown, repeats are given that nothing asks for, the
            run has no checkpoint yet, or its models differ in size.
    """
    names = [] if isinstance(statistics, str) else list(statistics)
    if not names or not set(names) <= set(STATISTICS):
        known = ", ".join(STATISTICS)
        raise ValueError(f"statistics are some of {known}, in a list; got {statistics!r}")
    if repeats is not None and "induction" not in names:
        raise ValueError(f"repeats are what induction is taken on; got {names}")
    run = _opened(run)
    chosen = _chosen(run, steps)
    question = _Question(run, tokens, mask, repeats, tuple(names), chosen[-1])
    found: list[dict[str, Tensor]] = []
    for done, step in enumerate(chosen, 1):
        found.append(question.answered(step, cache))
        sizes = [next(iter(each.values())).shape for each in (found[0], found[-1])]
        _check_one_size(sizes, [chosen[0], step])
        if progress is not None:
            progress(done, len(chosen))
    stacked: dict[str, Any] = dict.fromkeys(STATISTICS)
    stacked |= {name: torch.stack([each[name] for each in found]) for name in names}
    return Trajectory(**stacked, steps=tuple(chosen))


def _opened(run: object) -> Checkpoints:
    if isinstance(run, list | tuple):
        return Revisions(run)
    if not all(hasattr(run, name) for name in ("path", "steps", "load")):
        raise TypeError(
            f"wanted a Run, or a list of Hugging Face folders; got {run!r}: open a run's folder "
            "with interp.Run(folder), and name several checkpoints as a list"
        )
    return cast("Checkpoints", run)


def _check_one_size(sizes: Sequence[Sequence[int]], steps: Sequence[int]) -> None:
    """Refuse two models that differ in layers or heads."""
    first, last = map(list, sizes)
    if first != last:
        raise ValueError(
            f"wanted checkpoints of one model: [layers, heads] are {first} at step {steps[0]}, "
            f"{last} at step {steps[1]}"
        )


def _chosen(run: Checkpoints, steps: Sequence[int] | None) -> list[int]:
    if isinstance(steps, str | int | float):
        raise TypeError(f"steps are a list of steps, or None for all; got {steps!r}")
    if steps is not None and not len(steps):
        raise ValueError("steps are a list of at least one, or None for all; got none")
    known = run.steps
    if not known:
        raise ValueError(f"{run.path} has no checkpoint yet")
    missing = [step for step in steps or () if step not in known]
    if missing:
        raise ValueError(f"{run.path} has no checkpoint at {missing}; it has {known}")
    return known if steps is None else sorted(set(steps))


def _version(run: Checkpoints, step: int) -> str:
    """What tells a checkpoint from another that is written over it; "" of what can't be."""
    if isinstance(run, Run):
        return version_of([checkpoint_path(run.path, step)])
    version = getattr(run, "version", None)
    return "" if version is None else str(version(step))


@dataclass(frozen=True)
class _Question:
    run: Checkpoints
    tokens: Tensor
    mask: Tensor | None
    repeats: Tensor | None
    statistics: tuple[str, ...]
    last: int

    def answered(self, step: int, cache: bool) -> dict[str, Tensor]:
        """The statistics of one checkpoint, from the folder if it has them."""
        path = self.run.path / "dynamics" / f"{self._key(step)}-{step:08d}.json"
        if cache and path.is_file():
            try:
                stored = json.loads(path.read_text())
                return {name: _tensor(stored[name]) for name in self.statistics}
            except (json.JSONDecodeError, KeyError):
                path.unlink()  # not whole: computed anew
        found = self._computed(step)
        if cache:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(plain(found)))
        return found

    def _key(self, step: int) -> str:
        """Of what was asked, and of which files."""
        asked = hashlib.sha256(self.tokens.cpu().numpy().tobytes())
        if self.mask is not None:
            asked.update(self.mask.cpu().numpy().tobytes())
        asked.update(repr((tuple(self.tokens.shape), sorted(self.statistics))).encode())
        if self.repeats is not None:
            asked.update(self.repeats.cpu().numpy().tobytes())
            asked.update(repr(tuple(self.repeats.shape)).encode())
        asked.update(_version(self.run, step).encode())
        if "kl_to_final" in self.statistics:
            asked.update(f"{self.last} {_version(self.run, self.last)}".encode())
        return asked.hexdigest()[:16]

    @torch.no_grad()
    def _computed(self, step: int) -> dict[str, Tensor]:
        model, asked = self.run.load(step), set(self.statistics)
        found: dict[str, Tensor] = {}
        if asked & set(_OF_ONE_PASS):
            heads = head_statistics(model, self.tokens, mask=self.mask)
            found |= {name: getattr(heads, name) for name in asked & set(_OF_ONE_PASS)}
        if "induction" in asked:
            found["induction"] = self._induction(model)
        if "copying" in asked:
            found["copying"] = copying_score(model)
        if "k_composition" in asked:
            found["k_composition"] = _most_read(model)
        if "ablation" in asked:
            found["ablation"] = sweep(model, self.tokens, mask=self.mask).effect
        if "kl_to_final" in asked:
            final = self.run.load(self.last)
            sizes = [[m.config.n_layers, m.config.n_heads] for m in (model, final)]
            _check_one_size(sizes, [step, self.last])
            found["kl_to_final"] = pattern_divergence(final, model, self.tokens, mask=self.mask)
        return {name: x.float().cpu() for name, x in found.items()}

    def _induction(self, model: Any) -> Tensor:
        if self.repeats is None:
            return induction_scores(model)
        return head_statistics(model, self.repeats).induction


def _most_read(model: Transformer) -> Float[Tensor, "layer head"]:
    scores = composition_scores(model, "K", subtract_baseline=True).flatten(2)
    best = scores.nan_to_num(nan=-torch.inf).amax(-1)
    return best.masked_fill(best == -torch.inf, torch.nan)


def _tensor(values: list[list[float | None]]) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32))  # None, JSON's NaN, becomes NaN
