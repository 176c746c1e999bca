"""What can be read off an activation by a linear map, against a control that can only memorise.

Source: Alain & Bengio 2016, "Understanding intermediate layers using linear classifier probes";
selectivity after Hewitt & Liang 2019, "Designing and Interpreting Probes with Control Tasks", with
shuffled labels in the place of their control task.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from interp.results import numpy_array

Kind = Literal["logistic", "ridge"]

SHUFFLES = 3
"""How many shuffles of the labels the control is the mean of."""


@dataclass(frozen=True)
class Fitted:
    """What a fit has found.

    Attributes:
        direction: Reads a class's (or the value's) score off an activation: x · direction + bias.
            [C D]; one row for two classes (the second's) and for values. In the activation's own
            coordinates, so that it can be added, or projected out.
        bias: [C].
        classes: The labels in order; empty for values.
        held_out_score: Accuracy, or R², on examples that were not fitted.
        control_score: The same with shuffled labels in both parts; the mean of three shuffles.
        selectivity: The difference: what is there to be read, beyond what any probe can fit.
    """

    direction: Float[Tensor, "out d"]
    bias: Float[Tensor, " out"]
    classes: tuple[Any, ...]
    held_out_score: float
    control_score: float
    selectivity: float


class LinearProbe:
    """A logistic or ridge regression on standardised activations.

    probe = LinearProbe().fit(activations, labels)
    probe.held_out_score, probe.selectivity, probe.direction
    """

    def __init__(
        self, kind: Kind = "logistic", *, penalty: float = 1.0, held_out: float = 0.2
    ) -> None:
        """Choose what is fitted.

        Args:
            kind: "logistic" for labels that are classes, "ridge" for values.
            penalty: Strength of the L2 penalty, on standardised coordinates.
            held_out: Share of the examples that is only scored on.

        Raises:
            ValueError: An unknown kind, or a number out of range.
        """
        if kind not in ("logistic", "ridge"):
            raise ValueError(f'kind is "logistic" or "ridge", got {kind!r}')
        if penalty <= 0 or not 0 < held_out < 1:
            raise ValueError(
                f"penalty must be above 0 and held_out in (0, 1); got {penalty} and {held_out}"
            )
        self.kind, self.penalty, self.held_out = kind, penalty, held_out
        self.fitted: Fitted | None = None

    def fit(
        self,
        activations: Float[Tensor, "example *pos d"],
        labels: Shaped[Tensor, "example *pos"],
        *,
        generator: torch.Generator | None = None,
    ) -> "LinearProbe":
        """Fit on one part of the examples, score on the rest, and do it again with shuffled labels.

        The parts are cut along the first axis: tokens of one sequence are never in both.

        Args:
            activations: One vector for each label.
            labels: Integers or bools for "logistic", numbers for "ridge".
            generator: Draws the split and the shuffles. None: a fixed seed.

        Raises:
            TypeError: Activations or labels are no tensors.
            ValueError: Shapes do not fit, a number is not finite, there are too few examples, or
                one class only.
        """
        _check(activations, labels)
        self._check_classes(labels)
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        seen, unseen = self._split(len(labels), generator)
        x, y = activations.detach(), labels.detach()
        direction, bias, classes = self._solved(x[seen], y[seen])
        score = self._score(x[unseen], y[unseen], direction, bias, classes)
        control = 0.0
        for _ in range(SHUFFLES):
            told, asked = (_shuffled(y[part], generator) for part in (seen, unseen))
            control += self._score(x[unseen], asked, *self._solved(x[seen], told)) / SHUFFLES
        self.fitted = Fitted(direction, bias, classes, score, control, score - control)
        return self

    def predict(self, activations: Float[Tensor, "*example d"]) -> Shaped[Tensor, "*example"]:
        """The class, or the value, of each activation.

        Raises:
            TypeError: They are no tensor.
            ValueError: They are not as wide as those that were fitted.
        """
        found = self._known()
        _check_width(activations, found.direction)
        direction, bias = (x.to(activations.device).double() for x in (found.direction, found.bias))
        scores = activations.detach().double() @ direction.T + bias
        if self.kind == "ridge":
            return scores[..., 0].float()
        classes = torch.tensor(found.classes, device=scores.device)
        which = (scores[..., 0] > 0).long() if len(found.bias) == 1 else scores.argmax(-1)
        return classes[which]

    def score(self, activations: Float[Tensor, "*example d"], labels: Tensor) -> float:
        """Accuracy, or R², on other examples.

        Raises:
            TypeError: Activations or labels are no tensors.
            ValueError: Shapes do not fit, or a number is not finite.
        """
        _check(activations, labels)
        found = self._known()
        _check_width(activations, found.direction)
        return self._score(activations, labels, found.direction, found.bias, found.classes)

    @property
    def direction(self) -> Float[Tensor, "out d"]:
        """See `Fitted`."""
        return self._known().direction

    @property
    def held_out_score(self) -> float:
        """See `Fitted`."""
        return self._known().held_out_score

    @property
    def control_score(self) -> float:
        """See `Fitted`."""
        return self._known().control_score

    @property
    def selectivity(self) -> float:
        """See `Fitted`."""
        return self._known().selectivity

    def _known(self) -> Fitted:
        if self.fitted is None:
            raise RuntimeError("this probe is not fitted yet; call .fit(activations, labels)")
        return self.fitted

    def _check_classes(self, labels: Tensor) -> None:
        if self.kind == "ridge":
            return
        n_classes = len(labels.unique())
        if labels.is_floating_point() or n_classes < 2:
            raise ValueError(
                "a logistic probe wants labels of two classes or more, integers or bools; got "
                f'{n_classes} of {labels.dtype}. For values use LinearProbe("ridge")'
            )

    def _split(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        order = torch.randperm(n, generator=generator)
        held = round(n * self.held_out)
        if held < 1 or n - held < 2:
            raise ValueError(f"{n} examples are too few to fit and to hold {self.held_out:.0%} out")
        return order[held:], order[:held]

    def _solved(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
        """Weights in the activations' own coordinates, fitted in standardised ones."""
        flat, labels = _flat(x), numpy_array(y.flatten())
        mean, spread = flat.mean(0), flat.std(0)
        spread = np.where(spread > 0, spread, 1.0)
        weight, bias, classes = self._regressed((flat - mean) / spread, labels)
        weight = weight / spread
        bias = bias - weight @ mean
        return torch.from_numpy(weight).float(), torch.from_numpy(bias).float(), classes

    def _regressed(self, x: Any, y: Any) -> tuple[Any, Any, tuple[Any, ...]]:
        from sklearn.linear_model import LogisticRegression, Ridge

        if self.kind == "ridge":
            ridge = Ridge(alpha=self.penalty).fit(x, y)
            return np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_), ()
        if len(np.unique(y)) < 2:
            raise ValueError(
                f"the {len(y)} labels that are fitted, without those held out, are all {y[0]}: a "
                "class is too rare; give more examples of it"
            )
        logistic = LogisticRegression(C=1 / self.penalty, max_iter=5000).fit(x, y)
        return logistic.coef_, logistic.intercept_, tuple(logistic.classes_.tolist())

    def _score(
        self, x: Tensor, y: Tensor, direction: Tensor, bias: Tensor, classes: tuple[Any, ...]
    ) -> float:
        said = _flat(x) @ direction.double().numpy().T + bias.double().numpy()
        labels = numpy_array(y.flatten())
        if self.kind == "ridge":
            spread = ((labels - labels.mean()) ** 2).sum()
            return float(1 - ((labels - said[:, 0]) ** 2).sum() / spread) if spread else 0.0
        which = (said[:, 0] > 0).astype(int) if said.shape[1] == 1 else said.argmax(1)
        return float((np.array(classes)[which] == labels).mean())


def _flat(x: Tensor) -> Any:
    return numpy_array(x.detach().flatten(0, -2)).astype(np.float64)


def _shuffled(y: Tensor, generator: torch.Generator) -> Tensor:
    return y.flatten()[torch.randperm(y.numel(), generator=generator)].view(y.shape)


def _check(activations: Tensor, labels: Tensor) -> None:
    for name, x in (("activations", activations), ("labels", labels)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}; use torch.as_tensor")
    if activations.dim() < 2 or activations.shape[:-1] != labels.shape or not activations.shape[-1]:
        raise ValueError(
            "wanted activations [..., D] and a label for each, [...]; "
            f"got {list(activations.shape)} and {list(labels.shape)}"
        )
    for name, x in (("activations", activations), ("labels", labels)):
        if not bool(x.isfinite().all()):
            odd = int((~x.isfinite()).sum())
            raise ValueError(
                f"{odd} of the {x.numel()} numbers in {name} are NaN or infinite; leave those "
                "examples out, or look where the model makes them"
            )


def _check_width(activations: Tensor, direction: Float[Tensor, "out d"]) -> None:
    if not isinstance(activations, Tensor):
        got = type(activations).__name__
        raise TypeError(f"activations must be a tensor, got {got}; use torch.as_tensor")
    width = direction.shape[-1]
    if activations.dim() < 1 or activations.shape[-1] != width:
        raise ValueError(
            f"this probe was fitted on activations [..., {width}], got {list(activations.shape)}"
        )
