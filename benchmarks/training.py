"""Training: our loop against bare PyTorch's and TransformerLens 4's.

Contestants train the same model from the same weights on the same sequences with Adam, a clipped
gradient and a constant learning rate. Each runs in a thread of its own and is stopped where it
takes its data, every `STRIDE` steps: so a sample is steps of a run in progress, as users run it
(`interp.train` with its looks at the loss and at signals), without what comes before and behind.
"""

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import interp
from benchmarks import peers
from benchmarks.record import Check, Measurement, timed
from benchmarks.timing import interleave
from interp.tasks import Batch
from interp.tasks.batch import next_token_batch

LR, BETAS, CLIP = 1e-3, (0.9, 0.999), 1.0
STRIDE, POOL = 10, 64  # steps a sample; different batches, which come again and again
ENDLESS = 10**6
SIZES = (
    peers.Size(n_layers=2, n_heads=4, d_model=64, d_vocab=64, n_ctx=64, batch=64),
    peers.Size(n_layers=4, n_heads=8, d_model=256, d_vocab=512, n_ctx=128, batch=16),
)
QUICK = (peers.Size(n_layers=1, n_heads=2, d_model=16, d_vocab=11, n_ctx=8, batch=2),)
LIMIT = 1.08  # ours over bare


def measure(*, quick: bool = False, **how: Any) -> Iterator[Measurement]:
    """The three loops at each size."""
    budget = {"rounds": 2, "warmup": 1, "shortest": 0.0} if quick else {"rounds": 15}
    for size in QUICK if quick else SIZES:
        yield _compare(size, budget | how)


def _compare(size: peers.Size, budget: dict[str, Any]) -> Measurement:
    check_alike(Course.of(size))
    paced = {name: Paced(loop, Course.of(size)) for name, loop in LOOPS.items()}
    try:
        timing = interleave(paced, **budget)
    finally:
        for each in paced.values():
            each.end()
    ratio = timing.ratio("interp.train", "bare")
    check = Check(f"{size}, ours over bare", ratio, at_most=LIMIT)
    settings = asdict(size) | {"steps_a_call": STRIDE}
    found = timed(f"training · {size}", timing, baseline="bare", settings=settings, checks=[check])
    tokens = STRIDE * size.batch * size.n_ctx
    found.notes["tokens_per_second"] = {n: round(tokens / s) for n, s in found.medians.items()}
    return found


# --- what is trained -----------------------------------------------------------------------


@dataclass
class Course:
    """Weights to begin with, and sequences in order.

    Attributes:
        size: Of the model and its batches.
        bare: The weights, in the bare model's names.
        pool: Repeats of random tokens, [batch of sequences, T].
        steps: After which it ends.
        before_step: Called before each batch is handed out.
    """

    size: peers.Size
    bare: peers.Bare
    pool: Tensor
    steps: int = ENDLESS
    before_step: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, size: peers.Size) -> "Course":
        """The same beginning for all: our initial weights."""
        generator = torch.Generator().manual_seed(0)
        bare = peers.Bare(size, generator)
        own = interp.Transformer(_config(size)).state_dict()
        own["unembed.bias"] = torch.zeros(size.d_vocab)
        bare.load_state_dict({name: own[theirs] for name, theirs in _names(bare).items()})
        half = torch.randint(size.d_vocab, (POOL, size.batch, size.n_ctx // 2), generator=generator)
        return cls(size, bare, torch.cat([half, half], -1))

    def batch(self, step: int) -> Tensor:
        """The tokens of a step."""
        self.before_step()
        return self.pool[step % POOL]

    def batches(self) -> Iterator[Tensor]:
        """All of them, in order."""
        yield from map(self.batch, range(self.steps))


def _names(bare: peers.Bare) -> dict[str, str]:
    return {
        name: ".".join(peers.OURS.get(part, part) for part in name.split("."))
        for name in bare.state_dict()
    }


def _config(size: peers.Size) -> interp.TransformerConfig:
    return interp.TransformerConfig(
        n_layers=size.n_layers, n_heads=size.n_heads, d_model=size.d_model,
        d_vocab=size.d_vocab, n_ctx=size.n_ctx, d_mlp=4 * size.d_model, activation="gelu",
        bias=("norm", "qkv", "o", "mlp"),  # TransformerLens's unembedding has none
    )  # fmt: skip


# --- loops ---------------------------------------------------------------------------------


def train_bare(course: Course) -> nn.Module:
    """The loop that everybody writes first."""
    model = peers.Bare(course.size, torch.Generator())
    model.load_state_dict(course.bare.state_dict())
    model.unembed.bias.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS, fused=True)
    for tokens in course.batches():
        logits = model(tokens)[:, :-1]
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
    return model


def train_ours(course: Course) -> nn.Module:
    """`interp.train`, in a folder of its own."""
    batches = chain([course.pool[0]], course.batches())  # train looks at one beforehand

    def draw(n: int, generator: torch.Generator) -> Batch:
        if n != course.size.batch:  # for the evaluation
            return next_token_batch(course.pool[0, :n])
        return next_token_batch(next(batches))

    with tempfile.TemporaryDirectory() as folder:
        return interp.train(
            _config(course.size), draw, out=Path(folder) / "run", steps=course.steps,
            batch_size=course.size.batch, learning_rate=LR, betas=BETAS, clip_norm=CLIP,
            weight_decay=0.0, warmup_steps=0, schedule="constant", checkpoints_per_octave=0,
            evaluate_every=course.steps, evaluation_size=course.size.batch // 2,
            device="cpu", progress=lambda done, total: None,
        ).model  # fmt: skip


@dataclass
class Sequences(torch.utils.data.Dataset):
    """A course as TransformerLens's loop takes it: sequence by sequence, in an order of its own."""

    course: Course
    given: int = 0

    def __len__(self) -> int:
        return min(self.course.steps, ENDLESS // 100) * self.course.size.batch

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        step, row = divmod(self.given, self.course.size.batch)
        if row == 0:
            self.tokens = self.course.batch(step)
        self.given += 1
        return {"tokens": self.tokens[row]}


def train_transformer_lens(course: Course) -> nn.Module:
    """`transformer_lens.tools.training.train` on a native bridge."""
    from transformer_lens.tools import training

    config = training.TrainConfig(
        num_epochs=1, batch_size=course.size.batch, lr=LR, max_grad_norm=CLIP, device="cpu",
        print_every=None,
    )  # fmt: skip
    bridge = peers.transformer_lens(course.bare)
    data: Any = Sequences(course)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
        training.train(bridge, config, data)
    return bridge


LOOPS: dict[str, Callable[[Course], nn.Module]] = {
    "bare": train_bare,
    "interp.train": train_ours,
    "TransformerLens": train_transformer_lens,
}


@torch.no_grad()
def check_alike(course: Course, steps: int = 5) -> None:
    """Refuse to compare loops that don't learn the same from the same batches.

    Raises:
        AssertionError: Some logits differ by 1e-3 after `steps` steps.
    """
    course.steps = steps
    with torch.enable_grad():
        models = {name: loop(course) for name, loop in LOOPS.items()}
    logits = {name: model.eval()(course.pool[-1]) for name, model in models.items()}
    for name, found in logits.items():
        off = (found - logits["bare"]).abs().max().item()
        if not off < 1e-3:
            raise AssertionError(f"{name} is off the bare loop's logits by {off:.2g}")


# --- pacing --------------------------------------------------------------------------------


class EndedError(Exception):
    """The benchmark is over."""


@dataclass
class Paced:
    """A loop in a thread, that makes `STRIDE` steps a call."""

    loop: Callable[[Course], object]
    course: Course
    steps: int = 0
    over: bool = False
    error: BaseException | None = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.course.before_step = self._before_step
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        self.stopped.acquire()

    def __call__(self) -> None:
        """Make the next steps."""
        self.go.release()
        self.stopped.acquire()
        if self.error is not None:
            raise RuntimeError(f"{self.loop} ended") from self.error

    def end(self) -> None:
        """Let the thread end."""
        self.over = True
        self.go.release()
        self.thread.join()

    def _before_step(self) -> None:
        if self.steps % STRIDE == 0:
            self.stopped.release()
            self.go.acquire()
        if self.over:
            raise EndedError
        self.steps += 1

    def _run(self) -> None:
        try:
            self.loop(self.course)
        except EndedError:
            return
        except BaseException as error:  # the caller's thread raises it again
            self.error = error
        self.stopped.release()
