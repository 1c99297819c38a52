"""Every example once an epoch, in an order that its generator repeats."""

import pytest
import torch
from torch import Generator

from lzero.data import Batches, Split
from lzero.errors import ArgumentError


def numbered(count=23):
    """Images that hold their label."""
    labels = torch.arange(count)
    return Split(labels.to(torch.uint8)[:, None, None, None].expand(count, 1, 2, 2), labels)


def order(batches):
    return [label for _, labels in batches for label in labels.tolist()]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [1, 5, 23, 100])
def test_each_example_comes_once_with_its_label(size, shuffle, device):
    batches = Batches(numbered(), size, shuffle=shuffle, generator=Generator(), device=device)
    pairs = list(batches)
    assert all(torch.equal(images[:, 0, 0, 0].long(), labels) for images, labels in pairs)
    assert all(images.device.type == labels.device.type == device for images, labels in pairs)
    assert sorted(order(pairs)) == list(range(23))
    assert len(pairs) == len(batches)
    assert [len(labels) for _, labels in pairs[:-1]] == [size] * (len(pairs) - 1)


@pytest.mark.parametrize("size", [1, 5, 22, 23])
def test_without_the_last_every_batch_is_full(size):
    batches = Batches(numbered(), size, shuffle=True, generator=Generator(), drop_last=True)
    pairs = list(batches)
    assert len(batches) == len(pairs) == 23 // size
    assert {len(labels) for _, labels in pairs} == {size}


def test_without_shuffling_the_order_is_that_of_the_dataset():
    generator = Generator()
    state = generator.get_state()
    assert order(Batches(numbered(), 4, generator=generator)) == list(range(23))
    assert torch.equal(generator.get_state(), state)


def test_epochs_differ_and_come_again_from_the_state_of_the_generator(device):
    generator = Generator()
    batches = Batches(numbered(), 4, shuffle=True, generator=generator, device=device)
    first = order(batches)
    state = generator.get_state()
    second, third = order(batches), order(batches)
    assert len({tuple(epoch) for epoch in (first, second, third)}) == 3
    resumed = Generator()
    resumed.set_state(state)
    again = Batches(numbered(), 4, shuffle=True, generator=resumed)
    assert [order(again), order(again)] == [second, third]


def test_the_order_is_drawn_when_the_epoch_begins():
    generator = Generator()
    batches = Batches(numbered(), 4, shuffle=True, generator=generator)
    early = iter(batches)
    generator.manual_seed(99)
    assert order(early) == order(Batches(numbered(), 4, shuffle=True, generator=Generator()))


def test_changing_a_batch_leaves_the_dataset_alone():
    split = numbered()
    for images, labels in Batches(split, 4):
        images.zero_()
        labels.zero_()
    assert torch.equal(split.labels, torch.arange(23))
    assert split.images.sum() == 4 * sum(range(23))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected 1 or more, got 0"),
        ({"batch_size": -3}, "batch_size: expected 1 or more, got -3"),
        ({"batch_size": 24, "drop_last": True}, "batch_size: expected 1 to 23, got 24"),
        ({"batch_size": 4, "shuffle": True}, "generator: expected a generator of the CPU .* got none"),
    ],
)
def test_what_would_give_no_batches_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        Batches(numbered(), **options)
