"""The module that owns log α and gives the gates' values: a sample in training, an estimate in evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Self

import torch
from torch import Tensor, nn

from lzero.arguments import number, one_of, whole
from lzero.errors import ArgumentError, LzeroError
from lzero.laws import BinaryConcrete, Estimator, HardConcrete
from lzero.laws.hard_concrete import BETA, GAMMA, ZETA
from lzero.pending import Pending
from lzero.tensors import at_least_single

DEFAULT_KEEP_RATE = 0.95  # gates must start mostly open, or units close before the network has learned anything
INIT_STD = 0.01  # breaks ties between units; the papers' value


class Gate(nn.Module):
    r"""Hard concrete gates of one shape: $z \sim q(z \mid \log\alpha)$ in training, $\hat z$ in evaluation.

    Start them by `keep_rate` $r$, one minus the papers' dropout rate: $\log\alpha = \log\frac{r}{1-r}$; or by
    `prob_active` $p$, the probability of being nonzero (Eq. 12): $\log\alpha = \log\frac{p}{1-p} +
    \beta\log\frac{-\gamma}{\zeta}$. The two differ: a keep rate of 0.5 is a P(z ≠ 0) of 0.83. Noise of
    N(0, 0.01²) breaks ties.

    By itself a gate draws a new sample at each call. Inside a model, `gate.follow(model)` makes it one sample per
    call of that model, however often the gate is read, also when activation checkpointing reads it again. `log_alpha`
    is never clamped, and stays in float32 when the model is cast to half precision; so does the sample:
    `x * gate().to(x.dtype)`.

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
        beta: float = BETA,
        gamma: float = GAMMA,
        zeta: float = ZETA,
        estimator: Estimator = "eq13",
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.beta, self.gamma, self.zeta = number("beta", beta), number("gamma", gamma), number("zeta", zeta)
        balanced = HardConcrete(torch.zeros((), dtype=torch.float64, device="cpu"), self.beta, self.gamma, self.zeta)
        location = _initial_log_alpha(keep_rate, prob_active, balanced)
        log_alpha = torch.normal(location, INIT_STD, _size(shape), device=device, dtype=torch.float32)
        self.log_alpha = nn.Parameter(log_alpha)
        self.estimator: Estimator = one_of("estimator", estimator, Estimator)
        self._follows = False
        # What is kept is the noise, never the sample: each reading has a graph of its own. None: draw at each call.
        self._noise: dict[bool, Tensor] | None = None
        self._pending = Pending()

    @property
    def law(self) -> HardConcrete:
        """The law of the gates as log α stands now."""
        return HardConcrete(self.log_alpha, self.beta, self.gamma, self.zeta, validate_args=False)

    def forward(self, examples: int | None = None) -> Tensor:
        """The gates' values, of `log_alpha`'s shape; with `examples`, one sample for each of so many examples."""
        if isinstance(examples, Tensor):
            expected, advice = "a number of examples", "a gate gives its values; multiply by them: x * gate()"
            raise ArgumentError.about("examples", expected=expected, got="a tensor", advice=advice)
        leading = () if examples is None else (whole("examples", examples, of="examples"),)
        shape = torch.Size([*leading, *self.log_alpha.shape])
        if not self.training:
            return self.law.estimate(self.estimator).expand(shape)
        base = self.law.base
        if self._noise is None:
            return base.from_logit(base.noise(shape)).clamp(0, 1)
        if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            self._pending.check_recomputation()
        return self._pending.watched(base.from_logit(self._kept_noise(base, shape, examples is None)).clamp(0, 1))

    def _kept_noise(self, base: BinaryConcrete, shape: Sequence[int], shared: bool) -> Tensor:
        assert self._noise is not None  # noqa: S101 (asked by the caller)
        if shared not in self._noise or self._noise[shared].shape != shape:
            self._noise[shared] = base.noise(shape)
        return self._noise[shared]

    def follow(self, root: nn.Module) -> Self:
        """Draw one sample per call of `root`, the model this gate is a part of.

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
        self._noise = {}
        self._pending.begin()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(lambda tensor: at_least_single(fn(tensor), tensor), recurse)  # type: ignore[no-untyped-call]
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A copy without the model it follows draws at each call, until that model's hook says otherwise.
        return {**self.__dict__, "_noise": None}

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
        return balanced.log_alpha_at(number("prob_active", prob_active, above=0, below=1)).item()
    rate = number("keep_rate", DEFAULT_KEEP_RATE if keep_rate is None else keep_rate, above=0, below=1)
    return math.log(rate) - math.log1p(-rate)


def _size(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    if not all(isinstance(size, Integral) and not isinstance(size, bool) and int(size) >= 0 for size in sizes):
        raise ArgumentError.about("shape", expected="a whole number or a sequence of them", got=repr(shape))
    return tuple(int(size) for size in sizes)
