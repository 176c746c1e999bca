"""Data parallelism: several processes, started by torchrun, that share each batch.

Every process draws the whole batch from the same generator and takes its rows of it: so no
sequence is drawn twice, the weights don't depend on the number of processes but for rounding, and
a run can go on with another number of them. One process writes the folder.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn

from interp.tasks import Batch

# Devices that send gradients while they compute the rest. A processor has nothing that computes
# meanwhile: there one message a step, with all in it, takes less.
OVERLAPPING = ("cuda",)


@dataclass(frozen=True)
class Workers:
    """This process among those that train together.

    Attributes:
        rank: Its number; 0 writes.
        size: How many there are.
        device: Where it computes.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this one writes and speaks."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """This process's rows of a batch."""
        return batch if self.size == 1 else batch[self.rank :: self.size]

    @property
    def overlapping(self) -> bool:
        """Whether gradients are summed while the model is run backwards, and not behind that."""
        return self.size > 1 and self.device.type in OVERLAPPING

    def parallel(self, model: nn.Module) -> nn.Module:
        """The model; where they overlap, with gradients that are averaged as it runs backwards."""
        if not self.overlapping:
            return model
        from torch.nn.parallel import DistributedDataParallel

        ids = [self.device] if self.device.type == "cuda" else None
        # Buffers are constants (tables of positions): nothing to send before each step.
        known = signature(DistributedDataParallel).parameters
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        how: dict[str, Any] = {name: False, "gradient_as_bucket_view": True}
        return DistributedDataParallel(model, device_ids=ids, **how)

    def alone(self, model: nn.Module) -> AbstractContextManager[None]:
        """Backward passes inside add to this process's gradients only: others will follow."""
        from torch.nn.parallel import DistributedDataParallel

        return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()

    def summing(
        self, x: Tensor, parameters: Iterable[nn.Parameter]
    ) -> Callable[[], Float[Tensor, " n"]]:
        """Begin to sum over processes; what is returned waits for the sum and gives it.

        Args:
            x: What is summed, [n]; it may be written over.
            parameters: Their gradients are averaged, if `parallel`'s model has not done so.
        """
        if self.size == 1:
            return lambda: x
        if not self.overlapping:
            summed = _averaged(x, [p for p in parameters if p.grad is not None], self.size)
            return lambda: summed
        work = dist.all_reduce(x, async_op=True)
        assert work is not None  # as for every process of the group

        def waited() -> Tensor:
            work.wait()
            return x

        return waited

    def from_main(self, value: Any) -> Any:
        """What the first process gave."""
        if self.size == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, device=self.device)
        return held[0]


def _averaged(x: Tensor, parameters: list[nn.Parameter], size: int) -> Float[Tensor, " n"]:
    """Sum `x` and average gradients over `size` processes, in one message."""
    gradients = [p.grad.flatten() for p in parameters if p.grad is not None]
    together = torch.cat([x, *gradients])
    dist.all_reduce(together)
    summed, averaged = together[: len(x)].clone(), together[len(x) :].div_(size)
    for p, part in zip(parameters, averaged.split([len(g) for g in gradients]), strict=True):
        p.grad = part.view_as(p).to(p.dtype)  # a loss in float64 is sent with them
    return summed


@contextmanager
def joined(device: str | torch.device) -> Iterator[Workers]:
    """The processes that torchrun started, or this one alone.

    Args:
        device: "auto" takes CUDA where it is, else the CPU; under torchrun each takes its own.

    Raises:
        ValueError: There is no such device.
    """
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if size == 1:
        yield Workers(0, 1, chosen_device(device))
        return
    if device == "auto" and torch.cuda.is_available():
        device = f"cuda:{os.environ['LOCAL_RANK']}"
    own = chosen_device(device)
    if own.type == "cuda":
        torch.cuda.set_device(own)
    dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
    try:
        yield Workers(rank, size, own)
        dist.barrier()  # nobody leaves while another still writes
    except RuntimeError as error:
        if isinstance(error, dist.DistError) or "gloo" in str(error).lower():
            raise ConnectionError(
                f"process {rank} of {size} lost another one; the run goes on from what was saved "
                "last with resume=True (--resume)"
            ) from error
        raise
    finally:
        dist.destroy_process_group()


def is_main() -> bool:
    """Whether this process is the only one, or the first that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def chosen_device(device: str | torch.device) -> torch.device:
    """The device that was named.

    Raises:
        ValueError: There is none of that name.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)  # a build without CUDA, or too few GPUs, shows only here
    except (RuntimeError, TypeError, AssertionError, NotImplementedError) as error:
        said = str(error).strip().partition("\n")[0]
        raise ValueError(f"no device {device!r} here: want auto, cpu, cuda, … ({said})") from error
    return found
