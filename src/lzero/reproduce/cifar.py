"""WRN-28-10 on CIFAR-10 and CIFAR-100: Table 2 of the 2018 paper."""

from __future__ import annotations

from lzero.reproduce.rows import LOUIZOS, Experiment, Row

DENSE = ("gates.units=none", "objective.kind=none")
WIDE = "cifar10-wrn-28-10"


def _wide(
    dataset: str, errors: tuple[float, float, float, float], data: tuple[str, ...] = (), **options: float
) -> Experiment:
    """In the paper's setting, and in ours, at three budgets."""
    plain, dropout, weak, strong = errors
    rows = (
        Row("plain", f"{WIDE}-macs", (*data, *_network(options), *DENSE), LOUIZOS, "", plain),
        Row(
            "dropout 0.3", f"{WIDE}-macs", (*data, *_network({**options, "dropout": 0.3}), *DENSE), LOUIZOS, "", dropout
        ),
        *(
            Row(
                f"λ = {strength}/N, the paper's setting",
                f"{WIDE}-penalty",
                (*data, *_network(options), f"objective.strength={strength}"),
                LOUIZOS,
                "",
                error,
            )
            for strength, error in ((0.001, weak), (0.002, strong))
        ),
        *(
            Row(f"{target:.0%} of MACs", f"{WIDE}-macs", (*data, *_network(options), f"objective.target={target}"))
            for target in (0.7, 0.5, 0.3)
        ),
    )
    title = f"WRN-28-10 on {dataset}"
    name = f"table-2-{dataset.lower().replace('-', '')}"
    return Experiment(name, title, rows, 1, ("model.name=wrn-10-1", "training.epochs=1"))


def _network(options: dict[str, float]) -> tuple[str, ...]:
    """The change to a recipe that gives its network these options."""
    each = ", ".join(f"{name} = {value}" for name, value in options.items())
    return (f"model.options={{{each}}}",) if options else ()


CIFAR10 = _wide("CIFAR-10", (4.00, 3.89, 3.83, 3.93))
CIFAR100 = _wide("CIFAR-100", (21.18, 18.85, 18.75, 19.04), ("data.name=cifar100",), classes=100)
