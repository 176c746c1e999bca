"""Bytes of real text: by default the Python standard library's own source, which is everywhere."""

import hashlib
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.batch import Batch, Split, next_token_batch

HELD_OUT_SHARE = 10  # one file in ten, or the last tenth of a single one
LEFT_OUT = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib"}


@dataclass(frozen=True, kw_only=True)
class Text:
    """BOS, then consecutive bytes of text files.

    path: a file, or a folder that is read with all below it (None: the standard library's
        source, without its tests). Hidden files are left out.
    pattern: which files of a folder, as a glob on their names.
    length: positions of a sequence, BOS included.

    Raises:
        ValueError: a length below 3.
    """

    path: str | None = None
    pattern: str = "*"
    length: int = 128

    def __post_init__(self) -> None:
        if self.length < 3:
            raise ValueError(f"text wants a length of 3 or more, got {self.length}")

    @property
    def d_vocab(self) -> int:
        """The 256 bytes and BOS."""
        return 257

    @property
    def n_ctx(self) -> int:
        """Positions of a sequence."""
        return self.length

    @property
    def bos_token(self) -> int:
        """The token after the bytes."""
        return 256

    @property
    def labels(self) -> tuple[str, ...]:
        """The visible characters of ASCII, "␣" for the space, the others escaped; BOS."""
        signs = (repr(bytes([b]))[2:-1] for b in range(256))
        return (*("␣" if sign == " " else sign.replace("\\\\", "\\") for sign in signs), "BOS")


def text_batch(config: Text, n: int, generator: torch.Generator, *, split: Split) -> Batch:
    """`n` windows of the split's files, from anywhere in them; every next byte is a target.

    Files are split whole, by a hash of their content, and equal files count once, so that no
    window is on both sides. Of a single file, the last tenth is held out. A window may run from
    the end of a file into the next one of the same split.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file in it.
        ValueError: a file is not UTF-8, or a split is shorter than one sequence.
    """
    corpus = _corpus(config.path, config.pattern)[split]
    room = len(corpus) - (config.length - 1)
    if room < 0:
        raise ValueError(
            f"the {split} split of {config.path} has {len(corpus)} bytes: too few for a sequence "
            f"of {config.length - 1}; give more text or a smaller length"
        )
    starts = torch.randint(room + 1, (n, 1), generator=generator)
    windows = corpus[starts + torch.arange(config.length - 1)].long()
    return next_token_batch(torch.cat([torch.full((n, 1), config.bos_token), windows], 1))


@lru_cache(maxsize=4)
def _corpus(path: str | None, pattern: str) -> dict[Split, Int[Tensor, "bytes"]]:
    contents = list({hashlib.blake2b(c).digest(): c for c in _contents(path, pattern)}.items())
    if len(contents) == 1:
        content = contents[0][1]
        cut = len(content) - len(content) // HELD_OUT_SHARE
        return {"train": _joined([content[:cut]]), "held_out": _joined([content[cut:]])}
    # The lowest hashes, not those under a bound: of two files, too, one is held out.
    ordered = [content for _, content in sorted(contents)]
    cut = -(-len(ordered) // HELD_OUT_SHARE)
    return {"train": _joined(ordered[cut:]), "held_out": _joined(ordered[:cut])}


def _joined(contents: list[bytes]) -> Int[Tensor, "bytes"]:
    return torch.from_numpy(np.frombuffer(bytearray(b"\n".join(contents)), dtype=np.uint8))


def _contents(path: str | None, pattern: str) -> list[bytes]:
    files = _standard_library() if path is None else _files(Path(path), pattern)
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents, strict=True):
        try:
            content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text wants UTF-8, and {file} is not: leave it out by a pattern such as *.txt"
            ) from error
    return [content for content in contents if content]


def _files(path: Path, pattern: str) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"text wants a file or a folder, and there is no {path}")
    below = (file for file in sorted(path.rglob(pattern)) if file.is_file())
    shown = [f for f in below if not any(p.startswith(".") for p in f.relative_to(path).parts)]
    if not shown:
        raise FileNotFoundError(f"no file in {path} is called {pattern}")
    return shown


def _standard_library() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    return [f for f in sorted(root.rglob("*.py")) if LEFT_OUT.isdisjoint(f.relative_to(root).parts)]
