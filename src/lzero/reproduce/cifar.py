"""WRN on CIFAR-10 and CIFAR-100: Table 2 of the 2018 paper, and error against size."""

from __future__ import annotations

from dataclasses import replace

from lzero.reproduce.rows import DENSE, LOUIZOS, ZAGORUYKO, Experiment, Published, Row

LASSO = ("objective.kind=lasso", "objective.strength=0.3", "shrink.every=0", "shrink.freeze_after=0.7")
QUICK = ("model.name=wrn-10-1", "training.epochs=1", "shrink.round_to=1")
FULL, MILESTONES = 200, (60, 120, 160)  # epochs of the paper's setting, and those after which the rate is divided by 5
WIDE = "cifar10-wrn-28-10"


def _wide(
    dataset: str,
    errors: tuple[float, float, float, float],
    data: tuple[str, ...] = (),
    *,
    epochs: int,
    **options: float,
) -> Experiment:
    """In the paper's setting within `epochs`, and in ours, at three budgets."""
    plain, dropout, weak, strong = errors
    ours, paper, short = f"{WIDE}-macs", f"{WIDE}-penalty", f"the paper's setting in {epochs} epochs"
    shorter = (f"training.epochs={epochs}", f"optimizer.milestones={[each * epochs // FULL for each in MILESTONES]}")
    faster = f"gates.lr={0.1 * FULL / epochs:.7g}"  # penalties move gates as far as in all of the paper's epochs
    rows = (
        Row("plain", ours, (*data, *_network(options), *DENSE), Published(ZAGORUYKO, error=plain)),
        Row(
            "dropout 0.3",
            ours,
            (*data, *_network({**options, "dropout": 0.3}), *DENSE),
            Published(ZAGORUYKO, error=dropout),
        ),
        Row(
            f"without gates, {short}",
            paper,
            (*data, *_network(options), *shorter, *DENSE),
            Published(ZAGORUYKO, error=plain),
        ),
        *(
            Row(
                f"λ = {strength}/N, {short}",
                paper,
                (*data, *_network(options), f"objective.strength={strength}", *shorter, faster),
                Published(LOUIZOS, error=error),
            )
            for strength, error in ((0.001, weak), (0.002, strong))
        ),
        *(
            Row(f"{target:.0%} of MACs", ours, (*data, *_network(options), f"objective.target={target}"))
            for target in (0.7, 0.5, 0.3)
        ),
    )
    title = f"WRN-28-10 on {dataset}"
    name = f"table-2-{dataset.lower().replace('-', '')}"
    return Experiment(name, title, rows, 1, QUICK)


def _network(options: dict[str, float]) -> tuple[str, ...]:
    """The change to a recipe that gives its network these options."""
    each = ", ".join(f"{name} = {value}" for name, value in options.items())
    return (f"model.options={{{each}}}",) if options else ()


def _varied(experiment: Experiment, *variants: tuple[str, str, tuple[str, ...]]) -> Experiment:
    """With further rows: of each the label, the row that it varies, and how."""
    rows = {row.label: row for row in experiment.rows}
    more = (replace(rows[of], label=label, changes=(*rows[of].changes, *changes)) for label, of, changes in variants)
    return replace(experiment, rows=(*experiment.rows, *more))


AS_LONG = ("training.epochs=200",)  # as the paper's
CIFAR10 = _varied(
    _wide("CIFAR-10", (4.00, 3.89, 3.83, 3.93), epochs=60),
    ("50%, widths in multiples of 64", "50% of MACs", ("shrink.round_to=64",)),  # they suit a GPU better than 16
    ("30%, widths in multiples of 32", "30% of MACs", ("shrink.round_to=32",)),
    ("200 epochs, dense", "plain", AS_LONG),
    ("200 epochs, half of the MACs", "50% of MACs", AS_LONG),
)
LATE = ("objective.warm_up=0.75", "shrink.freeze_after=0.6")  # the better on held-out examples of CIFAR-100
CIFAR100 = _varied(
    _wide("CIFAR-100", (21.18, 18.85, 18.75, 19.04), ("data.name=cifar100",), epochs=30, classes=100),
    ("50%, gates for 60% of the epochs", "50% of MACs", LATE),
)

# WRN-16-4 whose blocks are uniformly narrower inside, by the largest factor with which MACs are within each share.
NARROWER = {0.1: 0.093, 0.2: 0.187, 0.3: 0.312, 0.5: 0.468, 0.7: 0.687}


def _trade_off() -> Experiment:
    """WRN-16-4, a thirteenth of WRN-28-10's MACs, at several sizes: ours, and what it is compared with."""
    small = ("training.epochs=40", "model.name=wrn-16-4", "shrink.round_to=8")
    recipe = f"{WIDE}-macs"
    rows = [
        Row("dense", recipe, (*small, *DENSE)),
        Row("dropout 0.3", recipe, (*small, *_network({"dropout": 0.3}), *DENSE)),
    ]
    for share, factor in NARROWER.items():
        size, target = f"{share:.0%} of MACs", f"objective.target={share}"
        rows += [
            Row(f"lzero, {size}", recipe, (*small, target)),
            Row(f"group lasso, {size}", recipe, (*small, *LASSO, target)),
            Row(f"narrower, {size}", recipe, (*small, *_network({"hidden": factor}), *DENSE)),
        ]
    title = "WRN-16-4 on CIFAR-10: error against size"
    return Experiment("trade-off-wrn", title, tuple(rows), 5, QUICK)


TRADE_OFF_WRN = _trade_off()
