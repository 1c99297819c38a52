"""The module that owns log α and gives the gates' values: a sample in training, an estimate in evaluation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from lzero.errors import ArgumentError, LzeroError
from lzero.laws import Estimator, HardConcrete

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEFAULT_KEEP_RATE = 0.95  # gates must start mostly open, or units close before the network has learned anything
INIT_STD = 0.01  # breaks ties between units; the papers' value


class Gate(nn.Module):
    r"""Hard concrete gates of one shape: $z \sim q(z \mid \log\alpha)$ in training, $\hat z$ in evaluation.

    Start them by `keep_rate` $r$, the papers' one minus dropout rate: $\log\alpha = \log\frac{r}{1-r}$; or by
    `prob_active` $p$, the probability of being nonzero (Eq. 12): $\log\alpha = \log\frac{p}{1-p} +
    \beta\log\frac{-\gamma}{\zeta}$. The two differ: a keep rate of 0.5 is a P(z ≠ 0) of 0.83. Noise of
    N(0, 0.01²) breaks ties.

    By itself a gate draws a new sample at each call. Inside a model, `gate.follow(model)` makes it one sample per
    forward of that model, however often the gate is read. `log_alpha` is never clamped, and stays in float32 when
    the model is cast to half precision.

    >>> gate = Gate(4, prob_active=0.9)
    >>> gate().shape, gate(examples=8).shape
    (torch.Size([4]), torch.Size([8, 4]))
    >>> bool((gate.eval()() == gate.law.estimate("eq13")).all())
    True
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        *,
        keep_rate: float | None = None,
        prob_active: float | None = None,
        beta: float = 2 / 3,
        gamma: float = -0.1,
        zeta: float = 1.1,
        estimator: Estimator = "eq13",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        balanced = HardConcrete(torch.zeros((), dtype=torch.float64), beta, gamma, zeta)
        balanced.estimate(estimator)  # refuses unknown names
        location = _initial_log_alpha(keep_rate, prob_active, balanced)
        size = (shape,) if isinstance(shape, int) else tuple(shape)
        self.log_alpha = nn.Parameter(torch.normal(location, INIT_STD, size, device=device))
        self.beta, self.gamma, self.zeta = beta, gamma, zeta
        self.estimator: Estimator = estimator
        self._follows = False
        self._samples: dict[int | None, Tensor] = {}

    @property
    def law(self) -> HardConcrete:
        """The law of the gates as log α stands now."""
        return HardConcrete(self.log_alpha, self.beta, self.gamma, self.zeta, validate_args=False)

    def forward(self, examples: int | None = None) -> Tensor:
        """The gates' values, of `log_alpha`'s shape; with `examples`, in training, one sample for each example."""
        if not self.training:
            estimate = self.law.estimate(self.estimator)
            return estimate if examples is None else estimate.expand(examples, *estimate.shape)
        if not self._follows:
            return self._draw(examples)
        if examples not in self._samples:
            self._samples[examples] = self._draw(examples)
        return self._samples[examples]

    def follow(self, root: nn.Module) -> Self:
        """Draw one sample per forward of `root`, the model this gate is a part of.

        In the model's `__init__`: `self.gate = Gate(100).follow(self)`.
        """
        if self._follows:
            raise LzeroError("this gate follows a model already; a gate belongs to one model")
        if not isinstance(root, nn.Module):
            raise ArgumentError.about("root", expected="a torch.nn.Module", got=type(root).__name__)
        root.register_forward_pre_hook(self._renew)
        self._follows = True
        return self

    def _renew(self, *_: object) -> None:
        self._samples = {}

    def _draw(self, examples: int | None) -> Tensor:
        return self.law.rsample(() if examples is None else (examples,))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def in_full_precision(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            half = moved.is_floating_point() and moved.dtype.itemsize < tensor.dtype.itemsize == 4
            return tensor.to(moved.device) if half else moved

        super()._apply(in_full_precision, recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A sample is part of an autograd graph, which can be neither copied nor pickled.
        return {**self.__dict__, "_samples": {}}

    def extra_repr(self) -> str:
        """The settings, for `print(model)`."""
        shape = tuple(self.log_alpha.shape)
        return f"{shape}, beta={self.beta:.4g}, gamma={self.gamma:g}, zeta={self.zeta:g}, estimator={self.estimator!r}"


def _initial_log_alpha(keep_rate: float | None, prob_active: float | None, balanced: HardConcrete) -> float:
    """Log α that gives the keep rate, or the P(z ≠ 0); `balanced` is the law at log α = 0."""
    if keep_rate is not None and prob_active is not None:
        advice = "a keep rate sets log α itself, prob_active sets P(z ≠ 0)"
        got = f"keep_rate={keep_rate} and prob_active={prob_active}"
        raise ArgumentError.about("keep_rate, prob_active", expected="one of them", got=got, advice=advice)
    if prob_active is not None:
        return _logit("prob_active", prob_active) - balanced.prob_active.logit().item()
    return _logit("keep_rate", DEFAULT_KEEP_RATE if keep_rate is None else keep_rate)


def _logit(argument: str, probability: float) -> float:
    if not 0 < probability < 1:
        raise ArgumentError.about(argument, expected="a number between 0 and 1", got=probability)
    return math.log(probability) - math.log1p(-probability)
