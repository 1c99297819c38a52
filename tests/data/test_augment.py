"""The laws of augmentation, against loops over single images."""

import pytest
import torch
from torch import Generator
from torch.nn import functional as F

from lzero.data import crop, cutout, flip, normalise, statistics
from lzero.errors import ArgumentError

AUGMENTATIONS = {
    "crop": lambda images, generator: crop(images, 2, generator),
    "flip": flip,
    "cutout": lambda images, generator: cutout(images, 3, generator),
}


def batch(device="cpu", dtype=torch.uint8, count=40):
    """Images without zeros, so that a zero was put there."""
    return torch.randint(1, 256, (count, 3, 6, 5)).to(device, dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_shape_type_and_device_stay_and_the_input_is_left_alone(name, dtype, device):
    images = batch(device, dtype)
    before = images.clone()
    result = AUGMENTATIONS[name](images, Generator())
    assert (result.shape, result.dtype, result.device) == (images.shape, images.dtype, images.device)
    assert torch.equal(images, before)
    assert not torch.equal(result, before)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_the_same_generator_gives_the_same_images_on_every_device(name, device):
    images = batch()
    first, second, other = (AUGMENTATIONS[name](images, Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(first, AUGMENTATIONS[name](images.to(device), Generator().manual_seed(1)).cpu())


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_generator_of_the_device_will_do(name, device):
    assert AUGMENTATIONS[name](batch(device), Generator(device)).device.type == device


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_a_batch_of_none_stays_one(name):
    assert AUGMENTATIONS[name](batch(count=0), Generator()).shape == (0, 3, 6, 5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_a_crop_without_padding_changes_nothing(dtype):
    images = batch(dtype=dtype)
    assert torch.equal(crop(images, 0, Generator()), images)


@pytest.mark.parametrize("pad", [1, 2, 7])
def test_each_crop_is_one_of_the_shifts_and_all_shifts_come(pad):
    images = batch(count=200)
    seen = set()
    for image, result in zip(images, crop(images, pad, Generator()), strict=True):
        padded = F.pad(image, (pad,) * 4)
        shifts = [(y, x) for y in range(2 * pad + 1) for x in range(2 * pad + 1)]
        found = [(y, x) for y, x in shifts if torch.equal(result, padded[:, y : y + 6, x : x + 5])]
        assert found
        seen.add(found[0])
    assert pad > 2 or len(seen) == (2 * pad + 1) ** 2


def test_each_flip_is_the_image_or_its_mirror_and_about_half_are():
    images = batch(count=400)
    flipped = 0
    for image, result in zip(images, flip(images, Generator()), strict=True):
        assert torch.equal(result, image) or torch.equal(result, image.flip(2))
        flipped += not torch.equal(result, image)
    assert 150 < flipped < 250


def test_flipping_twice_with_the_same_numbers_changes_nothing():
    images = batch()
    once = flip(images, Generator().manual_seed(3))
    assert torch.equal(flip(once, Generator().manual_seed(3)), images)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 20])
def test_cutout_takes_exactly_one_square_clipped_at_the_borders(size):
    images = batch(count=300)
    squares = set()
    for y in range(6):
        for x in range(5):
            mask = torch.zeros(6, 5, dtype=torch.bool)
            top, left = y - size // 2, x - size // 2
            mask[max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = True
            squares.add(tuple(mask.flatten().tolist()))
    seen = set()
    for image, result in zip(images, cutout(images, size, Generator()), strict=True):
        mask = (result == 0)[0]
        assert torch.equal(result, image * ~mask)
        seen.add(tuple(mask.flatten().tolist()))
    assert seen == squares


@pytest.mark.parametrize("call", [lambda x: crop(x, -1, Generator()), lambda x: cutout(x, -1, Generator())])
def test_a_negative_number_of_pixels_is_refused(call):
    with pytest.raises(ArgumentError, match="expected a whole number of pixels from 0, got -1"):
        call(batch())


@pytest.mark.parametrize("images", [torch.zeros(3, 6, 5), torch.zeros(2, 3, 6, 5, dtype=torch.int64)])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_what_is_no_batch_of_images_is_refused(name, images):
    with pytest.raises(ArgumentError, match=r"images: expected uint8 or floating \[N, C, H, W\]"):
        AUGMENTATIONS[name](images, Generator())


def test_statistics_are_those_of_all_pixels_of_a_channel(device):
    images = batch(device, count=2500)
    values = images.double() / 255
    mean, std = statistics(images)
    torch.testing.assert_close(mean, values.mean((0, 2, 3)).float())
    torch.testing.assert_close(std, values.std((0, 2, 3), correction=0).float())


def test_bytes_and_their_fractions_have_the_same_statistics():
    images = batch(count=50)
    torch.testing.assert_close(statistics(images), statistics(images.float() / 255))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_normalised_images_have_mean_zero_and_deviation_one(dtype, device):
    images = batch(device, dtype)
    result = normalise(images, *statistics(images))
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.mean((0, 2, 3)), torch.zeros(3, device=device), atol=1e-4, rtol=0)
    torch.testing.assert_close(result.std((0, 2, 3), correction=0), torch.ones(3, device=device))


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.0], [1.0], "mean: expected 3 numbers, one a channel"),
        ([0.0] * 3, [1.0] * 2, "std: expected 3 numbers"),
        ([0.0] * 3, [1.0, 0.0, 1.0], "std: expected numbers above 0"),
    ],
)
def test_normalising_by_other_than_a_number_a_channel_is_refused(mean, std, message):
    with pytest.raises(ArgumentError, match=message):
        normalise(batch(), mean, std)
