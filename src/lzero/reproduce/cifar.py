"""WRN-28-10 on CIFAR-10 and CIFAR-100: Table 2 of the 2018 paper."""

from __future__ import annotations

from lzero.reproduce.rows import LOUIZOS, Experiment, Row

DENSE = ("gates.units=none", "objective.kind=none")
WIDE = "cifar10-wrn-28-10"


def _wide(dataset: str, classes: int, errors: tuple[float, float, float, float]) -> Experiment:
    """In the paper's setting, and in ours, at three budgets."""
    plain, dropout, weak, strong = errors
    data = (f"data.name={dataset}",)
    options, dropped = f"model.options={{classes = {classes}}}", f"model.options={{classes = {classes}, dropout = 0.3}}"
    rows = (
        Row("plain", f"{WIDE}-macs", (*data, options, *DENSE), LOUIZOS, "", plain),
        Row("dropout 0.3", f"{WIDE}-macs", (*data, dropped, *DENSE), LOUIZOS, "", dropout),
        *(
            Row(
                f"λ = {strength}/N, the paper's setting",
                f"{WIDE}-penalty",
                (*data, options, f"objective.strength={strength}"),
                LOUIZOS,
                "",
                error,
            )
            for strength, error in ((0.001, weak), (0.002, strong))
        ),
        *(
            Row(f"{target:.0%} of MACs", f"{WIDE}-macs", (*data, options, f"objective.target={target}"))
            for target in (0.7, 0.5, 0.3)
        ),
    )
    title = f"WRN-28-10 on {dataset.upper().replace('R1', 'R-1')}"
    return Experiment(f"table-2-{dataset}", title, rows, 1, ("model.name=wrn-10-1", "training.epochs=1"))


CIFAR10 = _wide("cifar10", 10, (4.00, 3.89, 3.83, 3.93))
CIFAR100 = _wide("cifar100", 100, (21.18, 18.85, 18.75, 19.04))
