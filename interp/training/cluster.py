"""The runs of a sweep as tasks of a Ray cluster: each is one `interp train`, where there is room.

The folder of the runs must be one that every node sees, and interp be installed on each.
"""

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from interp.training.grid import Planned, Settings, row_of


def carried_out_on_ray(
    runs: Sequence[Planned],
    *,
    cpus: float = 1.0,
    gpus: float = 0.0,
    told: Callable[[int, int], None] | None = None,
) -> list[Settings]:
    """Do the runs on the cluster that RAY_ADDRESS names, or else one that begins and ends here.

    As `interp.training.grid.carried_out` does: a row for each, in order. A run whose worker is lost
    is a row with that error.

    Args:
        runs: What to do; their folders as every node sees them.
        cpus: Cores a run. Ray gives each as many threads.
        gpus: GPUs a run; a share lets several have one.
        told: Called with (done, all).

    Raises:
        FileNotFoundError: Ray is not installed.
    """
    ray = _ray()
    ray.init(log_to_driver=False, logging_level="warning", ignore_reinit_error=True)
    try:
        task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(row_of)
        numbers = {task.remote(run): number for number, run in enumerate(runs)}
        rows: dict[int, Settings] = {}
        while len(rows) < len(runs):
            (ready,), _ = ray.wait([ref for ref in numbers if numbers[ref] not in rows])
            rows[numbers[ready]] = _row(ray, ready, runs[numbers[ready]])
            if told is not None:
                told(len(rows), len(runs))
    finally:
        ray.shutdown()
    return [rows[number] for number in range(len(runs))]


def _row(ray: Any, ref: Any, run: Planned) -> Settings:
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()
        return run.row(error=said[0] if said else type(error).__name__)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report over the network
    try:
        return import_module("ray")
    except ImportError as error:
        raise FileNotFoundError(
            '--ray needs Ray, which is not installed: pip install "interp[cluster]"; without it, '
            "runs go to local processes (--processes)"
        ) from error
