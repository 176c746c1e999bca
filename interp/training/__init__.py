"""Training: what is behind `interp.train`."""

from interp.training.loop import train
from interp.training.options import TrainingOptions
from interp.training.stopping import TrainingStopped

__all__ = ["TrainingOptions", "TrainingStopped", "train"]
