"""Augmentation of whole batches, on the device they are on, with every random number from one given generator.

A generator of the CPU gives the same numbers on every device; one of the images' device spares a transfer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from lzero.arguments import whole
from lzero.errors import ArgumentError


def crop(images: Tensor, pad: int, generator: Generator) -> Tensor:
    """Shift each image by up to `pad` pixels either way, with zeros where it leaves a gap.

    >>> crop(torch.ones(2, 1, 4, 4), 0, Generator()).sum().item()
    32.0
    """
    _check(images, "pad", pad)
    count, _, height, width = images.shape
    top, left = (_draw(2 * pad + 1, count, generator, images) for _ in range(2))
    # Every shift of every image, as a view: only the chosen ones are copied.
    shifts = F.pad(images, (pad, pad, pad, pad)).unfold(2, height, 1).unfold(3, width, 1)
    return shifts[torch.arange(count, device=images.device), :, top, left]


def flip(images: Tensor, generator: Generator) -> Tensor:
    """Mirror each image left to right with probability one half."""
    _check(images)
    mirrored = _draw(2, len(images), generator, images).bool()
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def cutout(images: Tensor, size: int, generator: Generator) -> Tensor:
    """Set a square around a random pixel of each image to zero, less what of it is outside the image."""
    _check(images, "size", size)
    count, _, height, width = images.shape
    rows = _stripe(_draw(height, count, generator, images), size, height)
    columns = _stripe(_draw(width, count, generator, images), size, width)
    return images.masked_fill((rows[:, :, None] & columns[:, None, :])[:, None], 0)


def normalise(images: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Tensor:
    """Images, bytes or in 0 to 1, as floats from which a mean is taken and which a deviation divides, by channel.

    >>> normalise(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8), [0.5], [0.25]).item()
    2.0
    """
    _check(images)
    values = as_floats(images)
    mean, std = (torch.as_tensor(number, dtype=values.dtype, device=images.device) for number in (mean, std))
    for name, value in (("mean", mean), ("std", std)):
        if value.shape != images.shape[1:2]:
            raise ArgumentError.about(name, expected=f"{images.shape[1]} numbers, one a channel", got=value.tolist())
    if std.device.type == "cpu" and not (std > 0).all():  # looking at numbers on a GPU makes it wait
        raise ArgumentError.about("std", expected="numbers above 0", got=std.tolist())
    return (values - mean[:, None, None]) / std[:, None, None]


def statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of images, bytes or in 0 to 1, on the scale of 0 to 1."""
    _check(images)
    # In chunks, because a large dataset as floats may not fit; then by the law of total variance.
    parts = [torch.var_mean(as_floats(chunk), dim=(2, 3), correction=0) for chunk in images.split(1024)]
    within, means = (torch.cat(part).double() for part in zip(*parts, strict=True))
    between, mean = torch.var_mean(means, dim=0, correction=0)
    return mean.float(), (within.mean(0) + between).sqrt().float()


def as_floats(images: Tensor) -> Tensor:
    """Images, bytes or in 0 to 1, as floats on the scale of 0 to 1."""
    return images.float() / 255 if images.dtype == torch.uint8 else images.float()


def _draw(choices: int, count: int, generator: Generator, images: Tensor) -> Tensor:
    """Random whole numbers below `choices`, drawn where the generator is and taken to where the images are."""
    drawn = torch.randint(choices, (count,), generator=generator, device=generator.device)
    return drawn.to(images.device, non_blocking=True)


def _stripe(centre: Tensor, size: int, length: int) -> Tensor:
    """For each centre, which of `length` places are among the `size` around it."""
    distance = torch.arange(length, device=centre.device) - (centre - size // 2)[:, None]
    return (distance >= 0) & (distance < size)


def _check(images: Tensor, argument: str = "", value: int = 0) -> None:
    """Refuse what is no batch of images, and a negative number of pixels."""
    if images.dim() != 4 or not (images.dtype == torch.uint8 or images.is_floating_point()):
        got = f"{images.dtype} {list(images.shape)}"
        raise ArgumentError.about("images", expected="uint8 or floating [N, C, H, W]", got=got)
    whole(argument, value, 0, of="pixels")
