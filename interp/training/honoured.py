"""Options that only go together, or only with some models: refused before anything is written."""

from pathlib import Path

import torch

from interp.config import TransformerConfig
from interp.training.clamps import check_clamps
from interp.training.options import TrainingOptions
from interp.training.steering import check_steers

MEANS = ("mean", "grand_mean")


def check_kinds(config: object, progress: object) -> None:
    """Refuse what is no config, and what can't be told of progress.

    Raises:
        TypeError: One of them is of another kind.
    """
    if not isinstance(config, TransformerConfig):
        raise TypeError(
            f"wanted a TransformerConfig, got {type(config).__name__}; "
            "of a dict, TransformerConfig(**it)"
        )
    if not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress is True, False or a callable(done, steps); got {progress!r}")


def checked_folder(out: object) -> Path:
    """The run folder that was named.

    Raises:
        FileExistsError: It is a file.
        TypeError: It is no path.
        ValueError: It is empty, which would be the current directory.
    """
    if not isinstance(out, str | Path):
        raise TypeError(f"out is the run folder, a path; got {out!r}")
    if isinstance(out, str) and not out.strip():
        raise ValueError(f"out is the run folder; got {out!r}: for the current directory, say '.'")
    if Path(out).exists() and not Path(out).is_dir():
        raise FileExistsError(f"out is the run folder; {out} is a file: choose another name")
    return Path(out)


def check_flags(**flags: object) -> None:
    """Refuse what is neither True nor False.

    Raises:
        ValueError: One of them isn't.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} is True or False, got {value!r}")


def check_steering(
    options: TrainingOptions, config: TransformerConfig, *, compiled: bool = False
) -> None:
    """Refuse steering and clamps that this model, or a compiled one, can't be trained with.

    Raises:
        ValueError: As `check_clamps` and `check_steers` say; or it is to be compiled.
        LookupError: No activation has a hook's name.
    """
    check_clamps(options.clamps, config)
    check_steers(options.steer, options.clamps, config)
    if compiled and (options.steer or options.clamps):
        raise ValueError("steer and clamps run outside of a compiled graph: leave compiling out")


def check_device(options: TrainingOptions, device: torch.device) -> None:
    """Refuse what a device has no numbers for.

    Raises:
        ValueError: The loss is to be taken in float64 on Apple's GPUs.
    """
    if device.type == "mps" and options.loss_precision == "float64":
        raise ValueError("loss_precision='float64': mps has no float64; train on the CPU, or cuda")


def check_parts(options: TrainingOptions, *, size: int, micro: int) -> None:
    """Refuse to cut a batch where that would change what is computed.

    Args:
        options: Of the run.
        size: How many processes share a batch.
        micro: Sequences that are run at a time.

    Raises:
        ValueError: There are more processes than sequences; or an activation is held at the mean
            of a batch of which no process sees all.
    """
    if isinstance(micro, bool) or not isinstance(micro, int) or micro < 1:
        raise ValueError(f"micro_batch_size must be an integer of at least 1, got {micro!r}")
    if options.batch_size < size:
        raise ValueError(f"batch_size={options.batch_size} is less than the {size} processes")
    means = [clamp for clamp in options.clamps if clamp.to in MEANS]
    if means and (size > 1 or micro < options.batch_size):
        raise ValueError(
            f"a clamp to the batch's {means[0].to} needs the whole batch at once: use one process "
            "and no micro_batch_size, or clamp to zero"
        )
