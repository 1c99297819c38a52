"""Everything one training consists of, built from its recipe."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lzero import zoo
from lzero.data import Batches, Dataset, crop, cutout, flip, normalise, statistics
from lzero.errors import ArgumentError, MissingExtraError
from lzero.objectives import Constraint, Objective, Penalty, monte_carlo
from lzero.objectives.duals import Ascent, Dual, RestartedAscent
from lzero.objectives.schedules import linear
from lzero.sparsify import sparsify
from lzero.training.averaging import averaged

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from torch.optim import Optimizer
    from torch.optim.swa_utils import AveragedModel

    from lzero.recipes import Recipe
    from lzero.sparsifier import Sparsifier


@dataclass
class Session:
    """The parts of a training and how far it is."""

    recipe: Recipe
    fabric: Fabric
    model: nn.Module
    forward: Any  # the model as Fabric runs it: precision, and later distribution
    sparsifier: Sparsifier | None
    objective: Objective | None
    optimizers: list[Optimizer]
    average: AveragedModel | None
    batches: Batches
    test: Batches
    statistics: tuple[Tensor, Tensor]
    generator: torch.Generator
    epoch: int = 0

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        return self.recipe.training.epochs * len(self.batches)

    def step(self, images: Tensor, labels: Tensor, step: int) -> Tensor:
        """One step of all optimizers; the task's loss is returned."""
        self._set_learning_rate(step / len(self.batches))
        x = self._prepared(images, training=True)
        smoothing, samples = self.recipe.training.label_smoothing, self.recipe.gates.samples
        loss = monte_carlo(lambda: F.cross_entropy(self.forward(x), labels, label_smoothing=smoothing), samples)
        self.fabric.backward(loss if self.objective is None else loss + self.objective())
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if self.objective is not None:
            self.objective.step(loss)
        if self.average is not None:
            self.average.update_parameters(self.model)
        return loss.detach()

    def _prepared(self, images: Tensor, *, training: bool) -> Tensor:
        data = self.recipe.data
        if training and "crop" in data.augment:
            images = crop(images, data.crop_pad, self.generator)
        if training and "flip" in data.augment:
            images = flip(images, self.generator)
        x = normalise(images, *self.statistics)
        return cutout(x, data.cutout_size, self.generator) if training and "cutout" in data.augment else x

    def _set_learning_rate(self, epoch: float) -> None:
        """The rate of the weights at this moment; that of the gates stays."""
        settings = self.recipe.optimizer
        factor = 1.0
        if settings.schedule == "cosine":
            factor = (1 + math.cos(math.pi * epoch / self.recipe.training.epochs)) / 2
        elif settings.schedule == "steps":
            factor = settings.factor ** sum(epoch >= milestone for milestone in settings.milestones)
        self.optimizers[0].param_groups[0]["lr"] = settings.lr * factor

    def shrink(self) -> int:
        """Remove what is closed for good, if it is time; how many units is returned."""
        settings = self.recipe.shrink
        if self.sparsifier is None or not settings.every or self.epoch % settings.every:
            return 0
        averages = [] if self.average is None else [self.average]
        return self.sparsifier.shrink(
            self.optimizers, threshold=settings.threshold, round_to=settings.round_to, averages=averages
        )

    @torch.no_grad()
    def evaluate(self, model: nn.Module | None = None) -> tuple[float, float]:
        """Test error and loss of a model; without one, of the averaged weights, or else of the trained ones."""
        model = model or (self.average.module if self.average is not None else self.model)
        was_training = model.training
        model.eval()
        wrong, loss = 0, 0.0
        for images, labels in self.test:
            logits = model(self._prepared(images, training=False)).float()
            wrong += int((logits.argmax(1) != labels).sum())
            loss += float(F.cross_entropy(logits, labels, reduction="sum"))
        model.train(was_training)
        count = len(self.test.labels)
        return wrong / count, loss / count


def build(recipe: Recipe, dataset: Dataset, model: nn.Module | None = None, accelerator: str = "auto") -> Session:
    """A session at its beginning. All random numbers come from the recipe's seed."""
    fabric = _fabric(recipe, accelerator)
    torch.manual_seed(recipe.training.seed)
    generator = torch.Generator().manual_seed(recipe.training.seed)
    model = make_model(recipe) if model is None else model
    model = fabric.to_device(model)
    batches = Batches(
        dataset.train,
        recipe.training.batch_size,
        shuffle=True,
        generator=generator,
        device=fabric.device,
        drop_last=True,
    )
    test = Batches(dataset.test, 1000, device=fabric.device)
    identity = torch.zeros(dataset.shape[0]), torch.ones(dataset.shape[0])
    channels = statistics(dataset.train.images) if recipe.data.normalise else identity
    steps = recipe.training.epochs * len(batches)
    sparsifier = _gated(recipe, model, torch.zeros(1, *dataset.shape, device=fabric.device))
    optimizers = _optimizers(recipe, model, sparsifier, steps)
    forward, *_ = fabric.setup(model, *optimizers, move_to_device=False)
    average = averaged(model, recipe.training.average) if recipe.training.average else None
    objective = _objective(recipe, sparsifier, len(dataset.train.labels), steps)
    channels = channels[0].to(fabric.device), channels[1].to(fabric.device)
    return Session(
        recipe,
        fabric,
        model.train(),
        forward,
        sparsifier,
        objective,
        optimizers,
        average,
        batches,
        test,
        channels,
        generator,
    )


def _fabric(recipe: Recipe, accelerator: str) -> Fabric:
    try:
        from lightning.fabric import Fabric
    except ImportError as error:
        raise MissingExtraError.of("lightning", extra="train") from error
    return Fabric(accelerator=accelerator, devices=1, precision=recipe.training.precision)


def make_model(recipe: Recipe) -> nn.Module:
    """The network of a recipe: one of the zoo, or what `package.module:function` makes."""
    name, options = recipe.model.name, recipe.model.options
    module, colon, function = name.partition(":")
    if not colon:
        return zoo.make(name, **options)
    try:
        made = getattr(importlib.import_module(module), function)(**options)
    except (ImportError, AttributeError, TypeError) as error:
        raise ArgumentError.about("model.name", expected="package.module:function", got=f"{name} ({error})") from error
    if not isinstance(made, nn.Module):
        raise ArgumentError.about("model.name", expected="a function that makes a module", got=type(made).__name__)
    return made


def _gated(recipe: Recipe, model: nn.Module, example: Tensor) -> Sparsifier | None:
    gates = recipe.gates
    if gates.units == "none":
        return None
    return sparsify(
        model,
        example,
        units=gates.units,
        include=gates.include,
        exclude=gates.exclude,
        inputs=gates.inputs,
        keep_rate=gates.keep_rate,
        beta=gates.beta,
        gamma=gates.gamma,
        zeta=gates.zeta,
        estimator=gates.estimator,
    )


def _optimizers(recipe: Recipe, model: nn.Module, sparsifier: Sparsifier | None, steps: int) -> list[Optimizer]:
    """The weights' group first. Under SGD gates have an Adam of their own: their gradients are too small for SGD."""
    settings = recipe.optimizer
    if sparsifier is None:
        groups = [{"params": list(model.parameters()), "lr": settings.lr, "weight_decay": settings.weight_decay}]
    else:
        groups = sparsifier.param_groups(settings.lr, recipe.gates.lr, settings.weight_decay, steps=steps)
    if settings.kind == "adam":
        return [torch.optim.Adam(groups)]
    weights = torch.optim.SGD(groups[:1], momentum=settings.momentum, nesterov=settings.momentum > 0)
    return [weights, *(torch.optim.Adam([group]) for group in groups[1:])]


def _objective(recipe: Recipe, sparsifier: Sparsifier | None, num_data: int, steps: int) -> Objective | None:
    aim = recipe.objective
    if sparsifier is None or aim.kind == "none":
        return None
    if aim.kind == "penalty":
        strength = aim.strength
        if isinstance(strength, dict):
            strength = {glob: number / num_data for glob, number in strength.items()}
        elif not isinstance(strength, str):
            strength = strength / num_data
        return Penalty(sparsifier, strength, num_data=num_data, l2=aim.l2)
    duals: dict[str, Dual | None] = {
        "default": None, "ascent": Ascent(aim.dual_lr), "restarts": RestartedAscent(aim.dual_lr)
    }  # fmt: skip
    schedule = linear(max(1, round(aim.warm_up * steps))) if aim.warm_up else None
    return Constraint(
        sparsifier, aim.target, aim.cost, per=aim.per, steps=steps if aim.dual == "default" else None,
        schedule=schedule, dual=duals[aim.dual], violation=aim.violation,
    )  # fmt: skip
