"""What drives gates: a penalty, a constraint, a bound. All follow one protocol and give one record."""

from lzero.errors import BudgetWarning, NotFiniteError
from lzero.objectives.constraint import Constraint
from lzero.objectives.extra_gradient import extra_gradient_step
from lzero.objectives.group_lasso import GroupLasso
from lzero.objectives.objective import Objective, Record
from lzero.objectives.penalty import Penalty
from lzero.objectives.sampling import monte_carlo
from lzero.objectives.total import Total
from lzero.objectives.variational import VariationalBound

__all__ = [
    "BudgetWarning",
    "Constraint",
    "GroupLasso",
    "NotFiniteError",
    "Objective",
    "Penalty",
    "Record",
    "Total",
    "VariationalBound",
    "extra_gradient_step",
    "monte_carlo",
]
