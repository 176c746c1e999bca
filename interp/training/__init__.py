"""Training: what is behind `interp.train`."""

from interp.training.clamps import Clamp, Clamped, held
from interp.training.loop import train
from interp.training.options import TrainingOptions
from interp.training.steering import Steer
from interp.training.stopping import TrainingStopped

__all__ = [
    "Clamp",
    "Clamped",
    "Steer",
    "TrainingOptions",
    "TrainingStopped",
    "held",
    "train",
]
