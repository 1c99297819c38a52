"""Every example once an epoch, in an order that the seed and the epoch decide."""

import pytest
import torch

from lzero.data import Batches, Split
from lzero.errors import ArgumentError


def numbered(count=23):
    """Images that hold their label."""
    labels = torch.arange(count)
    return Split(labels.to(torch.uint8)[:, None, None, None].expand(count, 1, 2, 2), labels)


def order(batches):
    return [label for _, labels in batches for label in labels.tolist()]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("size", [1, 5, 23, 100])
def test_each_example_comes_once_with_its_label(size, seed, device):
    batches = Batches(numbered(), size, seed=seed, device=device)
    pairs = list(batches)
    assert all(torch.equal(images[:, 0, 0, 0].long(), labels) for images, labels in pairs)
    assert all(images.device.type == labels.device.type == device for images, labels in pairs)
    assert sorted(order(pairs)) == list(range(23))
    assert len(pairs) == len(batches)
    assert [len(labels) for _, labels in pairs[:-1]] == [size] * (len(pairs) - 1)


@pytest.mark.parametrize("size", [1, 5, 22, 23])
def test_without_the_last_every_batch_is_full(size):
    batches = Batches(numbered(), size, seed=0, drop_last=True)
    pairs = list(batches)
    assert len(batches) == len(pairs) == 23 // size
    assert {len(labels) for _, labels in pairs} == {size}


def test_without_a_seed_the_order_is_that_of_the_dataset():
    assert order(Batches(numbered(), 4)) == list(range(23))


def test_every_epoch_of_every_seed_has_an_order_of_its_own_that_comes_again(device):
    def orders(seed):
        batches = Batches(numbered(), 4, seed=seed, device=device)
        return [tuple(torch.cat(batches.rows(epoch)).tolist()) for epoch in range(5)]

    assert len({*orders(0), *orders(1)}) == 10
    assert orders(1) == orders(1)


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
    ],
)
def test_what_would_give_no_batches_is_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        Batches(numbered(), **options)
