"""What a recipe can say: the data, the network, its gates, what drives them, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from lzero.recipes.limits import check

Augmentation = Literal["crop", "flip", "cutout"]


@dataclass(frozen=True)
class Data:
    """The dataset and how its images are changed."""

    name: str = "digits"
    augment: tuple[Augmentation, ...] = ()
    crop_pad: int = 4
    cutout_size: int = 16
    normalise: bool = False
    held_out: float = 0.0  # the share of the training part that takes the place of the test part

    @property
    def evaluated_on(self) -> str:
        """The examples that errors are of."""
        return "held-out" if self.held_out else "test"


@dataclass(frozen=True)
class Model:
    """A network of the zoo, or `package.module:function`, with its options."""

    name: str = "smallconv"
    options: dict[str, Any] = field(default_factory=dict)
    init: str | None = None  # a safetensors file with weights to start from

    @property
    def is_given(self) -> bool:
        """Whether the network came as a module from Python: then its name is that of a class, which nothing makes."""
        return "." in self.name and ":" not in self.name


@dataclass(frozen=True)
class Gates:
    """Where gates are and how they start."""

    units: Literal["structure", "paper", "weights", "none"] = "structure"
    include: str | tuple[str, ...] = "*"
    exclude: str | tuple[str, ...] = "*/inner"
    inputs: bool = False
    keep_rate: float | dict[str, float] = 0.95
    beta: float = 2 / 3
    gamma: float = -0.1
    zeta: float = 1.1
    estimator: Literal["eq13", "median"] = "eq13"
    lr: float | None = None  # the default depends on the number of steps
    optimizer: Literal["adam", "same"] = "adam"  # one of their own under SGD, or that of the weights with its schedule
    samples: int = 1
    noise: Literal["own", "shared"] = "own"  # of each process, or the same in all


@dataclass(frozen=True)
class Aim:
    """What drives the gates: a penalty in units of 1/N, or a budget; or both, with group lasso in place of gates."""

    kind: Literal["none", "penalty", "constraint", "lasso"] = "constraint"
    strength: float | Literal["aic", "bic"] | dict[str, float] = 0.1
    l2: float = 0.0
    l2_moves_gates: bool = False
    target: float | str | dict[str, float | str] = 0.2
    cost: Literal["l0", "gates", "params", "macs"] = "macs"
    per: Literal["model", "layer"] = "model"
    dual: Literal["default", "ascent", "restarts"] = "default"
    dual_lr: float = 1e-4
    violation: Literal["log_ratio", "difference"] = "log_ratio"
    warm_up: float | None = None  # of the steps with gates: the penalty rises from 0, or the target comes down from 1


@dataclass(frozen=True)
class Optimizer:
    """The optimizer of the weights, and how its learning rate goes."""

    kind: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine", "steps"] = "constant"
    milestones: tuple[int, ...] = ()
    factor: float = 0.2


@dataclass(frozen=True)
class Training:
    """How long, how much at once, and with what precision."""

    epochs: int = 20
    batch_size: int = 64  # of one step, over all processes
    accumulate: int = 1  # parts of a batch that are computed one after another
    seed: int = 0
    precision: Literal["32-true", "bf16-mixed"] = "32-true"
    channels_last: bool = False
    label_smoothing: float = 0.0
    average: float = 0.0  # the decay of Polyak averaging; 0 is none


@dataclass(frozen=True)
class Shrink:
    """Removal while training: how often, below which probability, to which multiples, and when gates are done."""

    every: int = 0  # epochs; 0 is never
    threshold: float = 0.1
    round_to: int = 1
    freeze_after: float | None = None  # of all epochs: gates are folded in, and the plain network trains on
    steps: Literal["full", "subnetwork", "auto"] = "full"


@dataclass(frozen=True)
class Recipe:
    """All of it."""

    title: str = ""
    data: Data = field(default_factory=Data)
    model: Model = field(default_factory=Model)
    gates: Gates = field(default_factory=Gates)
    objective: Aim = field(default_factory=Aim)
    optimizer: Optimizer = field(default_factory=Optimizer)
    training: Training = field(default_factory=Training)
    shrink: Shrink = field(default_factory=Shrink)

    def __post_init__(self) -> None:
        check(self)

    @property
    def is_gated(self) -> bool:
        """Whether the network gets gates."""
        return self.gates.units != "none"
