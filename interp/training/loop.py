"""`interp.train`: from a config and a task to a run folder."""

import math
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.config import TransformerConfig
from interp.model import Transformer
from interp.runs import Run
from interp.tasks import Batch, Task, make
from interp.training.clamps import Clamped
from interp.training.data import Draw, Source, check_fit, source_of
from interp.training.evaluation import best_heads, held_out_scores
from interp.training.folder import (
    append_metrics,
    claimed,
    keep_metrics,
    open_folder,
    restore_state,
    save_checkpoint,
    save_state,
)
from interp.training.honoured import check_flags, check_kinds, check_steering, checked_folder
from interp.training.options import TrainingOptions
from interp.training.progress import Progress, Report, shown
from interp.training.stopping import StopRequest, TrainingStopped, listening_for_stop
from interp.training.trainer import Trainer
from interp.training.workers import joined

LOOK_EVERY = 10  # steps between looks at the loss, which wait for the device
SAVE_SECONDS = 30.0  # a killed run loses no more than this
HELD_OUT_SEED = 2**32 + 1  # of evaluation data: none of the seeds that are usually given


def train(
    config: TransformerConfig,
    task: str | Task | Draw = "repeated_tokens",
    *,
    out: str | Path,
    resume: bool = False,
    device: str | torch.device = "auto",
    progress: Progress = True,
    compile_model: bool = False,
    micro_batch_size: int | None = None,
    checkpoint_activations: bool = False,
    **options: Any,
) -> Run:
    """Train a model on a task, and write a run folder.

    What is stopped by Ctrl-C or SIGTERM is saved and can go on: the weights are then, bit by bit,
    those of a run that was not stopped, on the same machine. Evaluation changes nothing.

    Under torchrun, the processes share each batch: the same batches, the same loss but for
    rounding, one folder; and a run can go on with another number of them.

    With `clamps`, held-out loss and head scores are of the clamped model, as the training loss is;
    `held_out_loss_unclamped` and `held_out_accuracy_unclamped` are without. The saved weights know
    of no clamp. `train_loss` is the task's alone; what `steer` adds to it is `penalty`.

    Args:
        config: The model.
        task: A name (see `interp.tasks.TASKS`), a task from `interp.tasks.make`, or a function
            `(batch_size, generator) -> Batch`, which has no held-out split.
        out: The run folder.
        resume: Go on where `out` stopped, with the same settings; begin if there is nothing yet.
        device: "auto" takes CUDA where it is, else the CPU.
        progress: A bar on stderr; or a callable(steps done, steps).
        compile_model: Run the model through torch.compile; not with steer, clamps or sigma_reparam.
        micro_batch_size: Sequences that are run at a time, where memory is short: gradients are
            added up. None: the whole batch.
        checkpoint_activations: Keep what enters each block alone, and run blocks again for their
            gradients: less memory, a third more computation, the same weights.
        options: `steps`, `batch_size`, `seed`, `learning_rate` and the like, as
            `interp.training.TrainingOptions` explains them.

    Returns:
        The run: `.model`, `.path`, `.metrics`.

    Raises:
        TypeError: The config, the task, the folder or the progress is of another kind.
        ValueError: An option, or a task that doesn't fit the model, or other settings than those
            the folder was begun with.
        FileExistsError: The folder is in use, or a file.
        FloatingPointError: The loss diverged.
        TrainingStopped: A signal came; the run is saved.
    """
    check_kinds(config, progress)
    how: dict[str, Any] = {
        "compile_model": compile_model,
        "checkpoint_activations": checkpoint_activations,
    }
    check_flags(resume=resume, **how)
    chosen, folder = TrainingOptions.of(options), checked_folder(out)
    task = make(task) if isinstance(task, str) else task
    source = source_of(task)
    check_steering(chosen, config, compiled=compile_model)
    first = source.train(chosen.batch_size, torch.Generator().manual_seed(chosen.seed))
    check_fit(config, task, first)
    described = {
        "model": config.to_dict(),
        "task": source.described,
        "training": chosen.to_dict(),
    }
    how["micro_batch_size"] = micro_batch_size
    with listening_for_stop() as stop, joined(device) as workers:
        model = Transformer(config)
        trainer = Trainer(model, source.train, chosen, workers=workers, **how)
        with claimed(folder) if workers.main else nullcontext():
            loop = _Loop(trainer, folder, source, stop)
            begun = workers.main and open_folder(folder, described, resume=resume)
            loop.go(progress, restored=workers.from_main(begun))
    return Run(folder, trainer.plain.eval())


class _Loop:
    """The steps of a run, and what happens between them."""

    def __init__(self, trainer: Trainer, folder: Path, source: Source, stop: StopRequest) -> None:
        self.trainer, self.folder, self.stop = trainer, folder, stop
        options = trainer.options
        self.keep = set(options.checkpoint_steps())
        self.measure = set(options.evaluation_steps())
        self.workers = trainer.workers
        self.source, self.evaluated = source, _evaluated(source, options, self.workers.device)
        self.saved_at = time.perf_counter()

    def go(self, progress: Progress, *, restored: bool) -> None:
        """Begin, or go back to where the folder's run stopped; then make the missing steps."""
        if restored:
            restore_state(self.folder, self.trainer)
        if self.workers.main:
            keep_metrics(self.folder, until=self.trainer.step if restored else -1)
        if not restored:
            self._measure_and_save()
        self._steps(progress if self.workers.main else False)

    def _steps(self, progress: Progress) -> None:
        trainer, steps = self.trainer, self.trainer.options.steps
        trainer.model.train()
        with shown(progress, self.folder.name, steps=steps) as report:
            while trainer.step < steps:
                begun = time.perf_counter()
                trainer.advance(self.stop.signal or 0)
                loss = trainer.window.losses[-1]
                trainer.seconds += time.perf_counter() - begun
                self._measure_and_save()
                if trainer.step % LOOK_EVERY == 0 or trainer.step == steps:
                    self._show(report, loss)
                self._stop_if_asked()

    def _show(self, report: Report, loss: Tensor) -> None:
        """Show where it is; if that raises, training ends, and is saved."""
        self._refuse_divergence()
        shown_well = False
        try:
            report(self.trainer.step, self.trainer.tokens, float(loss))
            shown_well = True
        finally:
            if not shown_well:
                self._save()

    def _measure_and_save(self) -> None:
        """Do both, where this step is one for it."""
        step = self.trainer.step
        if step in self.measure:
            self._refuse_divergence()
            if self.workers.main:
                append_metrics(self.folder, self._measured())
            self.trainer.window.clear()
        if step in self.keep and self.workers.main:
            save_checkpoint(self.folder, self.trainer)
        late = time.perf_counter() - self.saved_at > SAVE_SECONDS
        if late or step in (0, self.trainer.options.steps):
            self._save()

    def _save(self) -> None:
        self._refuse_divergence()
        if self.workers.main:
            save_state(self.folder, self.trainer)
        self.saved_at = time.perf_counter()

    def _refuse_divergence(self) -> None:
        """Raise if a loss since the last evaluation is no number: such weights are not kept."""
        losses = self.trainer.window.losses
        if not losses or math.isfinite(float(losses[-1])):  # what is no number stays none
            return
        finite = [math.isfinite(float(loss)) for loss in losses]
        raise FloatingPointError(
            f"the loss is {float(losses[-1])} from step "
            f"{self.trainer.step - len(losses) + 1 + finite.index(False)} on: training diverged; "
            f"try a learning rate below {self.trainer.options.learning_rate:g}, or a longer warm-up"
        )

    def _measured(self) -> dict[str, Any]:
        trainer = self.trainer
        train_loss, train_accuracy, penalty = trainer.window.means()
        clamps, bare = trainer.options.clamps, trainer.model
        model = Clamped(bare, clamps) if clamps else bare
        line = {
            "step": trainer.step,
            "tokens": trainer.tokens,
            "seconds": round(trainer.seconds, 3),
            "learning_rate": trainer.options.learning_rate_at(trainer.step),
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            "held_out_loss": None,
            "held_out_accuracy": None,
            "in_context_score": None,
        }
        if trainer.options.steer:
            line["penalty"] = penalty
        if self.source.held_out is not None:
            line |= held_out_scores(model, self.evaluated)
            if clamps:
                found = held_out_scores(bare, self.evaluated)
                line |= {f"{name}_unclamped": value for name, value in found.items()}
        return line | best_heads(model, self.evaluated)

    def _stop_if_asked(self) -> None:
        trainer, asked = self.trainer, self.stop.signal or 0
        if self.workers.size > 1:  # all must know of it, and asking waits for the device
            asked = trainer.stopped_by() if trainer.step % LOOK_EVERY == 0 else 0
        if not asked or trainer.step >= trainer.options.steps:
            return
        self._save()
        raise TrainingStopped(
            f"stopped at step {trainer.step} of {trainer.options.steps}; {self.folder} is saved, "
            "and goes on with resume=True (--resume)",
            asked,
        )


def _evaluated(source: Source, options: TrainingOptions, device: torch.device) -> Batch:
    """What is measured on: held-out sequences, or a function's, drawn apart from training's."""
    generator, draw = torch.Generator().manual_seed(HELD_OUT_SEED), source.held_out or source.train
    return draw(options.evaluation_size, generator).to(device)
