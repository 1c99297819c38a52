"""The papers' experiments: what was set, and what was published."""

from __future__ import annotations

from dataclasses import dataclass

LOUIZOS, GALLEGO = "Louizos et al. 2018", "Gallego-Posada et al. 2021"


@dataclass(frozen=True)
class Row:
    """One line of a table: a recipe with changes, and the numbers of the paper, errors in percent."""

    label: str
    recipe: str
    changes: tuple[str, ...] = ()
    source: str = ""
    architecture: str = ""
    error: float | None = None  # at the end, where the paper gives it
    best: float | None = None  # over the training


@dataclass(frozen=True)
class Experiment:
    """A table: its rows, the order in which its layers are told, and how it is made small."""

    name: str
    title: str
    layers: tuple[str, ...]
    rows: tuple[Row, ...]
    seeds: int
    quick: tuple[str, ...]

    def settings(self, row: Row, *, quick: bool) -> list[str]:
        """The changes to a row's recipe."""
        return [*row.changes, *(self.quick if quick else ())]


MLP = Experiment(
    "table-1-mlp",
    "MLP 784-300-100 on MNIST",
    ("inputs of hidden.0", "hidden.0", "hidden.1"),
    (
        Row("λ = 0.1/N", "mnist-mlp-penalty", (), LOUIZOS, "219-214-100", 1.4),
        Row(
            "λ sep. [0.1, 0.1, 0.1]/N, as listed",
            "mnist-mlp-penalty",
            ('objective.strength={"inputs of hidden.0" = 0.1, "hidden.0" = 0.1, "hidden.1" = 0.1}',),
            LOUIZOS,
            "266-88-33",
            1.8,
        ),
        Row(
            "λ sep. that reaches the widths",
            "mnist-mlp-penalty",
            ('objective.strength={"inputs of hidden.0" = 0.07, "hidden.0" = 0.45, "hidden.1" = 4.0}',),
            LOUIZOS,
            "266-88-33",
            1.8,
        ),
        Row("ε = 33 %", "mnist-mlp-constraint", (), GALLEGO, "198-233-100", 1.69, 1.4),
        Row(
            "ε = 30 % a layer",
            "mnist-mlp-constraint",
            ("objective.target=0.3", "objective.per=layer"),
            GALLEGO,
            "243-89-29",
            2.18,
            1.63,
        ),
    ),
    5,
    ("training.epochs=3", "gates.lr=0.03", "objective.dual_lr=0.02"),
)

LENET = Experiment(
    "table-1-lenet5",
    "LeNet-5-Caffe 20-50-800-500 on MNIST",
    ("conv1", "conv2", "inputs of hidden", "hidden"),
    (
        Row("λ = 0.1/N", "mnist-lenet5-penalty", (), LOUIZOS, "20-25-45-462", 0.9),
        Row(
            "λ sep. [10, 0.5, 0.1, 0.1]/N, as listed",
            "mnist-lenet5-penalty",
            ('objective.strength={"conv1" = 10.0, "conv2" = 0.5, "inputs of hidden" = 0.1, "hidden" = 0.1}',),
            LOUIZOS,
            "9-18-65-25",
            1.0,
        ),
        Row(
            "λ sep. that reaches the widths",
            "mnist-lenet5-penalty",
            ('objective.strength={"conv1" = 10.0, "conv2" = 0.5, "inputs of hidden" = 0.1, "hidden" = 10.0}',),
            LOUIZOS,
            "9-18-65-25",
            1.0,
        ),
        Row("ε = 10 %", "mnist-lenet5-constraint", (), GALLEGO, "20-21-34-407", 1.04, 0.53),
        Row(
            "ε = [50, 30, 70, 10] % by layer",
            "mnist-lenet5-constraint",
            ('objective.target={"conv1" = 0.5, "conv2" = 0.3, "inputs of hidden" = 0.7, "hidden" = 0.1}',),
            GALLEGO,
            "10-14-224-29",
            0.97,
            0.7,
        ),
    ),
    5,
    ("training.epochs=2", "gates.lr=0.03", "objective.dual_lr=0.02"),
)

DYNAMICS = Experiment(
    "dynamics",
    "The MLP at ε = 33 %, with and without dual restarts (2021, Figure 1)",
    MLP.layers,
    (
        Row("with dual restarts", "mnist-mlp-constraint", (), GALLEGO),
        Row("without dual restarts", "mnist-mlp-constraint", ("objective.dual=ascent",), GALLEGO),
    ),
    1,
    MLP.quick,
)

TARGETS = ("0.05", "0.1", "0.2", "0.3", "0.5", "0.7")


def _densities(network: str, experiment: Experiment) -> Experiment:
    """Error against the target density, for the model and for every layer (2021, Figure 2): 100 epochs, three runs."""
    rows = tuple(
        Row(
            f"ε = {float(target):.0%} {'of the model' if per == 'model' else 'of each layer'}",
            f"mnist-{network}-constraint",
            (f"objective.target={target}", f"objective.per={per}", "training.epochs=100"),
            GALLEGO,
        )
        for per in ("model", "layer")
        for target in TARGETS
    )
    name, title = f"densities-{network}", f"{experiment.title}: error against the target density (2021, Figure 2)"
    return Experiment(name, title, experiment.layers, rows, 3, experiment.quick)


DENSE = ("gates.units=none", "objective.kind=none")
WIDE = "cifar10-wrn-28-10"


def _wide(dataset: str, classes: int, errors: tuple[float, float, float, float]) -> Experiment:
    """Table 2 of the 2018 paper: in its setting, and in ours, at three budgets."""
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
    return Experiment(f"table-2-{dataset}", title, (), rows, 1, ("model.name=wrn-10-1", "training.epochs=1"))


# Uniformly narrower LeNets, the widest whose MACs are within each share.
NARROWER = {
    0.02: (2, 4, 45),
    0.05: (3, 9, 87),
    0.1: (5, 14, 137),
    0.2: (8, 21, 212),
    0.3: (10, 26, 262),
    0.5: (13, 34, 337),
}


def _trade_off() -> Experiment:
    """LeNet-5 at several sizes: ours, and what it is compared with, all under one schedule."""
    rows = [Row("dense", "mnist-lenet5-dense"), Row("dropout 0.5", "mnist-lenet5-dropout")]
    for share, widths in NARROWER.items():
        size, target = f"{share:.0%} of MACs", (f"objective.target={share}",)
        rows += [
            Row(f"lzero, {size}", "mnist-lenet5-macs", target),
            Row(f"group lasso, {size}", "mnist-lenet5-lasso", target),
            Row(f"narrower, {size}", "mnist-lenet5-dense", (f"model.options={{widths = {list(widths)}}}",)),
        ]
    title = "LeNet-5-Caffe on MNIST: error against size"
    return Experiment("trade-off-lenet5", title, ("conv1", "conv2", "hidden"), tuple(rows), 5, ("training.epochs=1",))


ALL = (
    MLP,
    LENET,
    DYNAMICS,
    _densities("mlp", MLP),
    _densities("lenet5", LENET),
    _trade_off(),
    _wide("cifar10", 10, (4.00, 3.89, 3.83, 3.93)),
    _wide("cifar100", 100, (21.18, 18.85, 18.75, 19.04)),
)
EXPERIMENTS = {experiment.name: experiment for experiment in ALL}
