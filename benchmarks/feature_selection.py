"""Which features a budget on inputs keeps, beside what scikit-learn's selections keep, and how well they do.

All select on the whole table and are judged by the accuracy of a random forest in cross-validation on the chosen
columns: what is compared is the choice. In the last table 3 of 500 columns decide, and 60 rows are all there is.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from torch import nn

import lzero
from lzero.latency import machine
from lzero.layers import inputs_read
from lzero.objectives import Objective

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Criterion = Literal["aic", "bic"]
PenaltyCost = Literal["l0", "gates"]
Select = Callable[[Floats, Labels, int, int], list[int]]  # from table, labels, number of features and seed


def ours(table: Floats, labels: Labels, count: int, seed: int, *, steps: int, decay: float) -> list[int]:
    """So many of them, by a budget."""
    return _trained(table, labels, seed, lambda s: lzero.Constraint(s, count, "gates", steps=steps), steps, decay)


def _trained(
    table: Floats, labels: Labels, seed: int, aim: Callable[[lzero.Sparsifier], Objective], steps: int, decay: float
) -> list[int]:
    """The README's loop."""
    torch.manual_seed(seed)
    x, y = torch.tensor(table, dtype=torch.float32), torch.tensor(labels)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, int(y.max()) + 1))
    sparsifier = lzero.sparsify(model, x[:1], inputs=True, include="inputs of *")
    objective = aim(sparsifier)
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-2, weight_decay=decay, steps=steps))
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y) + objective()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        objective.step()
    first = lzero.compact(model, budget=objective if objective.budgets else None).get_submodule("0")
    return inputs_read(first)  # type: ignore[arg-type]


def best_alone(table: Floats, labels: Labels, count: int, seed: int) -> list[int]:  # noqa: ARG001
    """Those with the largest F statistic, each looked at alone."""
    return _first(SelectKBest(f_classif, k=count).fit(table, labels).scores_, count)


def forest(table: Floats, labels: Labels, count: int, seed: int) -> list[int]:
    """Those of the largest importance in a random forest."""
    importance = RandomForestClassifier(200, random_state=seed).fit(table, labels).feature_importances_
    return _first(importance, count)


def lasso(table: Floats, labels: Labels, count: int, seed: int) -> list[int]:  # noqa: ARG001
    """The last to go in logistic regression with an L1 penalty that grows."""
    size: Floats = np.zeros(table.shape[1])
    for strength in np.geomspace(1e3, 1e-3, 60):
        model = LogisticRegression(C=1 / strength, l1_ratio=1.0, solver="saga", max_iter=300).fit(table, labels)
        size = np.asarray(np.abs(model.coef_).sum(0))
        if (size > 0).sum() >= count:
            break
    return _first(size, count)


def by_chance(table: Floats, labels: Labels, count: int, seed: int) -> list[int]:  # noqa: ARG001
    """Any."""
    return _first(np.random.default_rng(seed).random((table.shape[1],)), count)


def _first(scores: Floats, count: int) -> list[int]:
    """The columns of the largest scores."""
    return [int(column) for column in np.argsort(-scores)[:count]]


WAYS: dict[str, Select] = {
    "lzero, 500 steps": partial(ours, steps=500, decay=0.0),
    "lzero, 500 steps, decay 0.01": partial(ours, steps=500, decay=1e-2),
    "lzero, 2000 steps": partial(ours, steps=2000, decay=0.0),
    "lzero, 2000 steps, decay 0.01": partial(ours, steps=2000, decay=1e-2),
    "largest F statistic": best_alone,
    "largest importance in a forest": forest,
    "L1 penalty": lasso,
    "by chance": by_chance,
}


def by_criterion(table: Floats, labels: Labels, seed: int, *, criterion: Criterion, cost: PenaltyCost) -> list[int]:
    """As many as a criterion says, which counts features, or the weights that read them."""
    return _trained(
        table, labels, seed, lambda s: lzero.Penalty(s, criterion, num_data=len(table), cost=cost), 2000, 1e-2
    )


CRITERIA: dict[str, Callable[[Floats, Labels, int], list[int]]] = {
    "BIC of features": partial(by_criterion, criterion="bic", cost="gates"),
    "AIC of features": partial(by_criterion, criterion="aic", cost="gates"),
    "BIC of weights": partial(by_criterion, criterion="bic", cost="l0"),
}


def standardised(loaded: Any) -> tuple[Floats, Labels]:
    """A table of scikit-learn's with means of 0 and deviations of 1."""
    return (loaded.data - loaded.data.mean(0)) / (loaded.data.std(0) + 1e-9), loaded.target


def few_rows(seed: int) -> tuple[Floats, Labels]:
    """60 rows of 500 columns, of which the sum of the first three decides."""
    table = np.random.default_rng(seed).standard_normal((60, 500))
    return table, (table[:, :3].sum(1) > 0).astype(np.int64)


TABLES = {
    "cancer, 1 of 30": (load_breast_cancer, 1),
    "wine, 2 of 13": (load_wine, 2),
    "digits, 3 of 64": (load_digits, 3),
}


def judged(table: Floats, labels: Labels, chosen: Sequence[list[int]]) -> float:
    """The accuracy of a forest on the chosen columns, in percent, in the mean over choices; that of chance for none."""
    judge, likeliest = RandomForestClassifier(50, random_state=0), np.bincount(labels).max() / len(labels)
    scores = [
        cross_val_score(judge, table[:, columns], labels, cv=3).mean() if columns else likeliest for columns in chosen
    ]
    return float(100 * statistics.mean(scores))


def print_criteria(seeds: int) -> None:
    """How many columns criteria keep, in each of them in how many trainings, and how good they are."""
    print(f"\n| | {' | '.join(name.partition(',')[0] for name in TABLES)} |\n|{' --- |' * (1 + len(TABLES))}")
    for way, select in CRITERIA.items():
        cells = []
        for load, _ in TABLES.values():
            table, labels = standardised(load())
            chosen = [select(table, labels, seed) for seed in range(seeds)]
            always = len(set[int].intersection(*map(set, chosen)))
            counts = ", ".join(str(len(columns)) for columns in chosen)
            cells.append(f"{counts} of {table.shape[1]}, {always} of them in all: {judged(table, labels, chosen):.1f}")
        print(f"| {way} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print mean accuracies in percent over seeds, how many of three columns are found, and what criteria keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="ways with this text in their name")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{machine(torch.device('cpu'))}, {options.seeds} seeds\n")
    print(f"| | {' | '.join(TABLES)} | 3 of 500, 60 rows: found |\n|{' --- |' * (2 + len(TABLES))}")
    tables = {name: (*standardised(load()), count) for name, (load, count) in TABLES.items()}
    for way, select in ((way, select) for way, select in WAYS.items() if options.only in way):
        cells = []
        for table, labels, count in tables.values():
            chosen = [select(table, labels, count, seed) for seed in range(options.seeds)]
            cells.append(f"{judged(table, labels, chosen):.1f}")
        found = [len({0, 1, 2} & {*select(*few_rows(seed), 3, seed)}) for seed in range(options.seeds)]
        print(f"| {way} | {' | '.join(cells)} | {', '.join(map(str, found))} |", flush=True)
    if not options.only:
        print_criteria(options.seeds)


if __name__ == "__main__":
    main()
