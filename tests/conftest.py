"""What every test may use: fixtures beside the checkout, seeded randomness, one torch thread."""

import os
from pathlib import Path

import pytest
import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Two pools of threads on two cores wait on each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of third-party weights and expected numbers; absent, the test is skipped."""
    beside = Path(__file__).parents[2] / "shared"
    folder = Path(os.environ.get("INTERP_SHARED", beside))
    if not folder.is_dir():
        pytest.skip(f"no fixtures at {folder} (set INTERP_SHARED)")
    return folder


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded generator, the same for every test."""
    return torch.Generator().manual_seed(0)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `gpu` where there is no accelerator."""
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no accelerator")
