"""The variational bound behind the penalty (2018, appendix A)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import kl_divergence

from lzero.arguments import number, whole
from lzero.errors import ArgumentError
from lzero.gating import first_matches
from lzero.laws.rectified import Rectified
from lzero.objectives.objective import Objective, Record
from lzero.objectives.penalty import Penalty

if TYPE_CHECKING:
    from lzero.sparsifier import Sparsifier


class VariationalBound(Objective):
    r"""$\frac1N\big(\sum_g KL(q(z_g)\,\|\,p(z_g)) + \lambda \sum_g |g|\,P(z_g \ne 0)\big)$ (Eq. 21).

    The loss it is added to is a mean over examples, in nats. `prior` is how often gates are active before any data,
    such as 0.1, for all gates or for each glob over the names that `sparsifier.plan()` shows; or a law. `code_cost` is
    λ, the nats that an active parameter takes. `relaxed()` leaves the KL out, which is Eq. 22: the penalty. Average
    the loss over L samples with `monte_carlo`.

    >>> import lzero
    >>> from torch import nn
    >>> sparsifier = lzero.sparsify(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(3, 4))
    >>> bound = VariationalBound(sparsifier, prior=0.1, num_data=1000)
    >>> bound().backward()
    """

    def __init__(
        self,
        sparsifier: Sparsifier,
        prior: float | Mapping[str, float] | Rectified,
        *,
        num_data: int,
        code_cost: float = 0.0,
    ) -> None:
        super().__init__(sparsifier)
        self.num_data = whole("num_data", num_data, of="training examples")
        code_cost = number("code_cost", code_cost, least=0, of="nats")
        if isinstance(prior, Rectified) and prior.batch_shape:
            expected, advice = "one law for all gates", "one for each glob is a mapping to probabilities"
            raise ArgumentError.about("prior", expected=expected, got=f"laws {tuple(prior.batch_shape)}", advice=advice)
        self._code = Penalty(sparsifier, code_cost / self.num_data)
        self._prior = prior if isinstance(prior, Rectified) else _locations(sparsifier, prior)

    def relaxed(self) -> Penalty:
        """The bound without its KL (Eq. 22), which is the penalised objective (Eq. 3)."""
        return Penalty(self.sparsifier, self._code.strength.item())

    def prior(self) -> Rectified:
        """p(z) of all gates, in their order."""
        if isinstance(self._prior, Rectified):
            return self._prior
        log_alpha = self.sparsifier.log_alpha
        parts = [log_alpha.new_full((g.size,), self._prior[g.name]) for g in self.sparsifier.groups]
        return self.sparsifier.bank.law(torch.cat(parts))

    def forward(self) -> Tensor:
        """The bound's terms besides the loss, as the gates stand now."""
        divergence = kl_divergence(self.sparsifier.law, self.prior()).sum()
        term: Tensor = divergence / self.num_data + self._code()
        self._term = term.detach()
        return term

    @property
    def record(self) -> Record:
        """What the bound was; its multiplier is λ/N, and nothing is violated."""
        record = self._code.record
        with torch.no_grad():
            term = self.forward() if self._term is None else self._term
        return replace(record, step=self.steps, term=term, task_loss=self._task_loss)


def _locations(sparsifier: Sparsifier, prior: float | Mapping[str, float]) -> dict[str, float]:
    """The log α of the prior, by group."""
    names = [group.name for group in sparsifier.groups]
    by_glob = prior if isinstance(prior, Mapping) else {"*": prior}
    matched = first_matches(names, by_glob, "prior")
    missing = set(names).difference(*matched.values())
    if missing:
        advice = 'add "*" as the last glob'
        raise ArgumentError.about(
            "prior", expected="one for every group", got=f"none for {min(missing)}", advice=advice
        )
    law = sparsifier.bank.law(torch.zeros((), dtype=torch.float64, device="cpu"))
    at = {glob: law.log_alpha_at(_probability(by_glob[glob])).item() for glob in matched}
    return {name: at[glob] for glob, found in matched.items() for name in found}


def _probability(prior: float) -> float:
    return number("prior", prior, above=0, below=1, advice="give how often gates are active, or a law")
