"""The penalised objective of the 2018 paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lzero.arguments import number, one_of, whole
from lzero.budgets import Meter
from lzero.errors import ArgumentError
from lzero.gating import first_matches
from lzero.objectives.expected_l2 import ExpectedL2
from lzero.objectives.objective import Objective, Record
from lzero.objectives.schedules import Schedule, constant

if TYPE_CHECKING:
    from lzero.sparsifier import Sparsifier

Criterion = Literal["aic", "bic"]


class Penalty(Objective):
    r"""$\lambda \sum_g |g|\,P(z_g \ne 0)$ for each group of gates (Eq. 9, 16), with an expected L2 norm on request.

    `strength` is λ, per parameter and for a mean loss in nats, such as `0.1 / num_data`; or one λ for each glob over
    the names that `sparsifier.plan()` shows; or `"aic"` ($1/N$) or `"bic"` ($\frac{\log N}{2N}$) with `num_data`. `l2`
    adds $\frac{c}{2} \sum_j P_j \tilde\theta_j^2$ (Eq. 17), which decays weights like a weight decay of $c$ as long as
    they are likely to stay; it moves gates only with `l2_moves_gates`. `schedule` is a factor on the whole, by the
    step. With `cost="gates"` every gate counts as one, $|g| = 1$, as in choosing features.

    >>> import lzero
    >>> from torch import nn
    >>> sparsifier = lzero.sparsify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4))
    >>> objective = Penalty(sparsifier, strength=0.1 / 60_000)
    >>> objective().backward()
    """

    def __init__(
        self,
        sparsifier: Sparsifier,
        strength: float | Criterion | Mapping[str, float],
        *,
        num_data: int | None = None,
        l2: float = 0.0,
        l2_moves_gates: bool = False,
        schedule: Schedule = constant,
        cost: Literal["l0", "gates"] = "l0",
    ) -> None:
        super().__init__(sparsifier, schedule)
        self._l2, self._l2_moves_gates = number("l2", l2, least=0), l2_moves_gates
        names = [group.name for group in sparsifier.groups]
        if isinstance(strength, Mapping) and not strength:
            raise ArgumentError.about("strength", expected="at least one glob with its λ", got="none")
        if isinstance(strength, Mapping):
            matched = first_matches(names, strength, "strength")
            self.names, groups = tuple(matched), list(matched.values())
            strengths = [_strength(each, num_data) for each in strength.values()]
        else:
            self.names, groups, strengths = ("model",), [()], [_strength(strength, num_data)]
        self._meter = Meter(sparsifier, one_of("cost", cost, Literal["l0", "gates"]), groups)
        self._expected_l2 = ExpectedL2(sparsifier)
        self.strength: Tensor
        strength_of = torch.tensor(strengths, dtype=torch.float32, device=sparsifier.log_alpha.device)
        self.register_buffer("strength", strength_of, persistent=False)  # an argument, not what training finds
        self._weights: Tensor  # λ for the share of each group
        self.register_buffer("_weights", strength_of * self._meter.dense.to(strength_of), persistent=False)

    def forward(self) -> Tensor:
        """The penalty as the gates stand now."""
        probability = self.sparsifier.law.prob_active
        term = (self._weights * self._meter.shares(probability)).sum()
        if self._l2:
            survival = probability if self._l2_moves_gates else probability.detach()
            term = term + self._l2 / 2 * self._expected_l2(survival)
        term = term * self._factor
        self._term = term.detach()
        return term

    @property
    def record(self) -> Record:
        """What the penalty was; nothing is violated."""
        return self._without_violation(self.names, self._meter, self.strength * self._factor)


def _strength(strength: float | Criterion, num_data: int | None) -> float:
    if isinstance(strength, str):
        if strength not in ("aic", "bic"):
            raise ArgumentError.about("strength", expected='a number, "aic" or "bic"', got=repr(strength))
        num_data = whole("num_data", num_data, 2, of="training examples", advice=f'"{strength}" is defined by it')
        return 1 / num_data if strength == "aic" else math.log(num_data) / (2 * num_data)
    return number("strength", strength, least=0, advice='it may also be "aic" or "bic"')
