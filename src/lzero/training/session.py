"""One training: its parts, one step of it, and the ways in which its network gets smaller."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from lzero.compact import compact
from lzero.cutting import plan_of
from lzero.data import Batches, as_floats, crop, cutout, flip, normalise
from lzero.objectives import NotFiniteError, monte_carlo
from lzero.subnetwork import Subnetwork
from lzero.traceless import evaluating
from lzero.training.averaging import Polyak
from lzero.training.optimizers import make_optimizers, schedule_at, set_rates

if TYPE_CHECKING:
    from lightning.fabric import Fabric
    from torch.optim import Optimizer

    from lzero.objectives import Objective
    from lzero.recipes import Recipe
    from lzero.sparsifier import Sparsifier

WORTH_IT = 0.95  # of the time of a full step: less than that is gained with certainty


@dataclass
class Session:
    """The parts of a training and how far it is.

    The first stage has gates; after `freeze`, and in trainings without gates, the network is a plain one.
    """

    recipe: Recipe
    fabric: Fabric
    model: nn.Module
    forward: Callable[[Tensor], Tensor]  # the model as Fabric runs it: precision and distribution
    sparsifier: Sparsifier | None
    objective: Objective | None
    optimizers: list[Optimizer]
    average: Polyak | None
    batches: Batches
    test: Batches
    statistics: tuple[Tensor, Tensor] | None  # of the images, where they are normalised
    augmentation: Generator
    gate_noise: Generator
    dense: nn.Module  # the network before it had gates, to compare with
    widths: dict[str, int]  # units of each site and inputs with gates, before anything was removed
    totals: Tensor  # of this epoch so far, over steps: the loss, and the error on what was learnt from
    commit: str  # of lzero, when the training was built; all of them where it went on with another
    epoch: int = 0
    position: int = 0  # steps of this epoch so far
    seconds: float = 0.0  # so far
    version: int = 0  # of the network: another one after each removal
    in_parts: bool = False  # whether steps compute only what the sample of the gates reads
    _subnetwork: Subnetwork | None = None
    _rate_left: float | None = None  # of the learning rate, as the optimizer has it; setting it costs a GPU a launch

    @property
    def step_number(self) -> int:
        """Steps so far."""
        return self.epoch * len(self.batches) + self.position

    @property
    def is_frozen(self) -> bool:
        """Whether gates were there and are folded in."""
        return self.sparsifier is None and self.recipe.is_gated

    def step(self, rows: Tensor) -> None:
        """One step of all optimizers on these rows, all of it on the device."""
        loss = self._gradient(rows)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if self.objective is not None:
            self.objective.note(loss)
            self.objective.update()
        if self.average is not None:
            self.average.update_parameters(self.model)
        self.totals[0].add_(loss)

    def _gradient(self, rows: Tensor) -> Tensor:
        """The task's loss, its gradient with that of the objective left in the parameters."""
        *others, last = rows.chunk(self.recipe.training.accumulate)
        total = torch.zeros_like(self.totals[0])
        for part in others:
            with self.fabric.no_backward_sync(self.forward):  # type: ignore[arg-type]
                loss = self._task_loss(part, len(rows)) / (len(others) + 1)
                self.fabric.backward(loss)
            total = total + loss.detach()
        loss = self._task_loss(last, len(rows))
        loss = loss / (len(others) + 1) if others else loss
        self.fabric.backward(loss if self.objective is None else loss + self.objective())
        return total + loss.detach() if others else loss.detach()

    def _task_loss(self, rows: Tensor, of: int) -> Tensor:
        """The loss on these rows, which are among so many of the step."""
        images, labels = self.batches.take(rows)
        x, smoothing = self._prepared(images, training=True), self.recipe.training.label_smoothing
        samples = self.recipe.gates.samples

        def loss() -> Tensor:
            scores = self._network(x)
            wrong = (scores.detach().argmax(1) != labels).sum()
            self.totals[1].add_(wrong, alpha=1 / (samples * of))
            return F.cross_entropy(scores, labels, label_smoothing=smoothing)

        return monte_carlo(loss, samples)

    def _network(self, x: Tensor) -> Tensor:
        if not self.in_parts:
            return self.forward(x)
        assert self._subnetwork is not None  # noqa: S101 (made before steps were chosen)
        scores: Tensor = self._subnetwork(x)
        return scores

    def resume_steps(self, in_parts: bool) -> None:
        """Go on as the steps before a checkpoint were run."""
        if in_parts and self.sparsifier is not None:
            self._subnetwork = Subnetwork(self.sparsifier, self.forward)
        self.in_parts = in_parts

    def choose_steps(self, rows: Tensor) -> None:
        """Decide how the next steps are run, as the recipe says, or as is faster on this machine for these rows.

        On a GPU a captured step is the faster one, unless the recipe says otherwise.
        """
        how = self.recipe.shrink.steps
        if self.sparsifier is None or how == "full" or (how == "auto" and self.fabric.device.type != "cpu"):
            self.in_parts = False
            return
        if self._subnetwork is None:
            self._subnetwork = Subnetwork(self.sparsifier, self.forward)
        self.in_parts = True
        if how == "auto":
            images, _ = self.batches.take(rows)
            with self.fabric.autocast():
                self.in_parts = self._subnetwork.relative_time(self._prepared(images, training=False)) < WORTH_IT

    def _prepared(self, images: Tensor, *, training: bool) -> Tensor:
        data = self.recipe.data
        if training and "crop" in data.augment:
            images = crop(images, data.crop_pad, self.augmentation)
        if training and "flip" in data.augment:
            images = flip(images, self.augmentation)
        x = as_floats(images) if self.statistics is None else normalise(images, *self.statistics)
        if self.recipe.training.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return cutout(x, data.cutout_size, self.augmentation) if training and "cutout" in data.augment else x

    def before_step(self) -> None:
        """Set the learning rate for this moment."""
        left = schedule_at(self.recipe, self.step_number / len(self.batches))
        if left != self._rate_left:
            set_rates(self.optimizers[0], left)
            self._rate_left = left

    def after_step(self) -> None:
        """Count the step, and stop if numbers are none any more."""
        if self.objective is not None:
            self.objective.look()
            self.objective.count()
        self.position += 1

    def means(self) -> tuple[float, float]:
        """Of this epoch so far, over steps and processes: the loss, and the error on what was learnt from."""
        totals = self.fabric.all_reduce(self.totals.clone(), reduce_op="mean")
        assert isinstance(totals, Tensor)  # noqa: S101 (as it was given)
        loss, error = (totals / max(1, self.position)).tolist()
        return loss, error

    def check_finite(self) -> None:
        """Stop, in all processes alike, if the loss of one is no number any more, or a weight."""
        loss, _ = self.means()
        weights = (parameter for parameter in self.model.parameters() if parameter.requires_grad)
        if math.isfinite(loss) and all(bool(weight.isfinite().all()) for weight in weights):
            return
        what = "weights are" if math.isfinite(loss) else "the loss is"
        raise NotFiniteError(
            f"{what} not finite in epoch {self.epoch + 1}; begin anew with a lower learning rate (optimizer.lr)"
        )

    def end_epoch(self) -> tuple[float, float]:
        """Go on to the next epoch; the means are returned, of the loss and of the training error."""
        self.check_finite()
        loss, error = self.means()
        self.totals.zero_()
        self.epoch, self.position = self.epoch + 1, 0
        return loss, error

    def get_smaller(self) -> int:
        """Remove what is closed, if it is time; how many units went."""
        return self._freeze() if self._freezes() else self._shrink()

    def _shrink(self) -> int:
        settings = self.recipe.shrink
        if self.sparsifier is None or not settings.every or self.epoch % settings.every:
            return 0
        removed = self.sparsifier.shrink(
            self.optimizers,
            threshold=settings.threshold,
            round_to=settings.round_to,
            averages=[] if self.average is None else [self.average],
        )
        if removed:
            self.set_up()
        return removed

    def _freezes(self) -> bool:
        after = self.recipe.shrink.freeze_after
        return self.sparsifier is not None and after is not None and self.epoch >= after * self.recipe.training.epochs

    def _freeze(self) -> int:
        """Fold the gates in and go on with the plain network."""
        assert self.sparsifier is not None  # noqa: S101 (asked by the caller)
        before = {site.name: site.size for site in self.sparsifier.structure.sites}
        small = self.compacted()
        left = plan_of(small)["sites"]  # also of sites that an earlier training has cut
        self.become(small)
        return sum(size - len(left[name]) for name, size in before.items())

    def compacted(self) -> nn.Module:
        """The plain network as it stands: averaged where weights are, and within the budget. Ends this stage."""
        if self.average is not None:
            self.model.load_state_dict(self.average.module.state_dict())
        if self.sparsifier is None:
            return self.model
        budget = self.objective if self.objective is not None and self.objective.budgets else None
        return compact(self.model, budget=budget, round_to=self.recipe.shrink.round_to)

    def become(self, small: nn.Module) -> None:
        """Train this plain network from now on."""
        self.model, self.sparsifier, self.objective = small.train(), None, None
        self.average = Polyak(small, self.recipe.training.average) if self.recipe.training.average else None
        self.optimizers, self._rate_left = make_optimizers(self.recipe, small, None, 1), None
        self.set_up()

    def set_up(self) -> None:
        """Let Fabric wrap the model anew, after its sizes have changed."""
        if self.recipe.training.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for optimizer in self.optimizers:  # whose fused kernels want the layout of the parameters
                for state in optimizer.state.values():
                    state.update({key: _channels_last(value) for key, value in state.items()})
        self.forward = self.fabric.setup_module(self.model, move_to_device=False)
        self._subnetwork = None
        self.version += 1

    @torch.no_grad()
    def evaluate(self, model: nn.Module | None = None) -> tuple[float, float]:
        """Error and loss of a model; without one, of the averaged weights, or else of the trained ones."""
        if model is None:
            model = self.average.module if self.average is not None else self.model
        sums = torch.zeros(2, dtype=torch.float64, device=self.fabric.device)
        with evaluating(model):
            for rows in self.test.rows()[self.fabric.global_rank :: self.fabric.world_size]:
                images, labels = self.test.take(rows)
                with self.fabric.autocast():
                    logits = model(self._prepared(images, training=False)).float()
                sums[0] += (logits.argmax(1) != labels).sum()
                sums[1] += F.cross_entropy(logits, labels, reduction="sum")
        wrong, loss = (self.fabric.all_reduce(sums, reduce_op="sum") / len(self.test.labels)).tolist()  # type: ignore[union-attr, operator]
        return wrong, loss


def _channels_last(value: Any) -> Any:
    """A tensor of four dimensions with its channels last, and anything else as it is."""
    is_image = isinstance(value, Tensor) and value.dim() == 4
    return value.contiguous(memory_format=torch.channels_last) if is_image else value
