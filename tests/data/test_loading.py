"""Whole files come back as what was written, from every place they may lie in."""

import builtins
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lzero import LzeroError
from lzero.data import DataError, Dataset, Split, check, digits, known, load
from lzero.data.folders import data_folder
from lzero.data.idx import read_idx
from lzero.data.loading import describe, read
from lzero.errors import ArgumentError, MissingExtraError
from tests.data.files import SMALL, SMALL_MNIST, cifar10_files, cifar100_files, idx, mnist_files, pictures, put


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(5,), (2, 3), (4, 28, 28)])
def test_an_idx_file_comes_back(shape, packed, tmp_path):
    values = pictures(*shape)
    put(tmp_path, {"a": idx(values)}, packed=packed)
    assert torch.equal(read_idx(next(tmp_path.iterdir()), len(shape)), values)


def test_a_gzip_file_needs_no_name_that_says_so(tmp_path):
    put(tmp_path, {"a": idx(torch.zeros(3, dtype=torch.uint8))}, packed=True)
    (tmp_path / "a.gz").rename(tmp_path / "a")
    assert read_idx(tmp_path / "a", 1).tolist() == [0, 0, 0]


def test_mnist_has_the_images_and_labels_of_its_files(tmp_path):
    files = mnist_files()
    put(tmp_path / "mnist", files)
    dataset = read(SMALL_MNIST, tmp_path)
    assert dataset.shape == (1, 28, 28)
    assert dataset.test.images.numpy().tobytes() == files["t10k-images-idx3-ubyte"][16:]
    assert dataset.train.labels.tolist() == list(files["train-labels-idx1-ubyte"][8:])


def test_cifar10_joins_its_batches_in_order(tmp_path):
    files = cifar10_files()
    put(tmp_path / "cifar10", files)
    train = read(SMALL["cifar10"][0], tmp_path).train
    rows = [data[start : start + 3073] for data in list(files.values())[:5] for start in (0, 3073)]
    assert train.labels.tolist() == [row[0] for row in rows]
    assert train.images.numpy().tobytes() == b"".join(row[1:] for row in rows)


def test_cifar100_is_labelled_by_the_fine_label(tmp_path):
    files = cifar100_files()
    put(tmp_path / "cifar100", files)
    test = read(SMALL["cifar100"][0], tmp_path).test
    assert test.labels.tolist() == list(files["test.bin"][1::3074])
    assert test.images[2].numpy().tobytes() == files["test.bin"][-3072:]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("place", ["{0}", ".", "{0}/{1}", "{1}"])
@pytest.mark.parametrize("name", SMALL)
def test_files_are_found_in_every_usual_place(name, place, packed, tmp_path):
    source, files = SMALL[name]
    put(tmp_path / place.format(name, source.subfolder or "."), files(), packed=packed)
    assert describe(read(source, tmp_path)).startswith(f"{name}: {source.counts[0]} training")


@pytest.mark.parametrize("name", SMALL)
def test_a_missing_file_is_named_with_what_to_do(name, tmp_path):
    file = SMALL[name][0].train[0]
    with pytest.raises(DataError, match=f"{file}.* is neither in .*`lzero data fetch {name}`.*--data-dir"):
        load(name, tmp_path)


def test_files_of_another_dataset_with_the_same_names_are_refused(tmp_path):
    put(tmp_path, mnist_files())
    with pytest.raises(DataError, match=r"labels begin .* those of mnist .*another dataset"):
        read(replace(SMALL_MNIST, begins=(200, 0, 0)), tmp_path)


@pytest.mark.parametrize(("counts", "part"), [((5, 3), "train-images"), ((6, 4), "t10k-images")])
def test_fewer_or_more_images_than_the_dataset_has_are_refused(counts, part, tmp_path):
    put(tmp_path, mnist_files(counts))
    with pytest.raises(DataError, match=f"{part}.* images, expected .* for mnist"):
        read(SMALL_MNIST, tmp_path)


def test_images_of_another_size_are_refused(tmp_path):
    put(tmp_path, mnist_files() | {"train-images-idx3-ubyte": idx(pictures(6, 8, 8))})
    with pytest.raises(DataError, match=r"images of \(1, 8, 8\), expected \(1, 28, 28\)"):
        read(SMALL_MNIST, tmp_path)


def test_the_digits_are_always_split_the_same_way():
    first, again = digits(), load("digits")
    assert (len(first.train), len(first.test), first.shape) == (1500, 297, (1, 8, 8))
    assert torch.equal(first.train.images, again.train.images)
    assert first.test.labels[:8].tolist() == [5, 4, 1, 8, 6, 6, 5, 0]
    assert (first.train.images.min(), first.train.images.max()) == (0, 1)
    assert first.test.labels.bincount().min() >= 20


def test_the_digits_without_scikit_learn_name_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"scikit-learn.*lzero\[train\]"):
        digits()


def test_every_known_name_is_told_and_checked():
    assert known() == ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
    assert check("digits") == "digits: 1500 training and 297 test images of 1×8×8, 10 classes"


@pytest.mark.parametrize(("name", "near"), [("MNIST", "mnist"), ("cifar-10", "cifar10"), ("fashion", "fashion-mnist")])
def test_an_unknown_name_is_refused_with_the_nearest(name, near):
    with pytest.raises(ArgumentError, match=f"got '{name}'; did you mean {near}?"):
        load(name)


def test_a_name_like_no_other_is_refused_with_the_list():
    with pytest.raises(ArgumentError, match=r"expected one of digits, mnist,.*got 'zzz'$"):
        check("zzz")


def test_the_folder_is_the_argument_else_the_variable_else_the_cache(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("LZERO_DATA", raising=False)
    assert data_folder() == Path("/cache/lzero/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_folder() == Path("/home/me/.cache/lzero/data")
    monkeypatch.setenv("LZERO_DATA", "/chosen")
    assert data_folder() == Path("/chosen")
    assert data_folder("/given") == Path("/given")


def test_a_user_without_a_home_is_told_how_to_name_a_folder(monkeypatch):
    def homeless():
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LZERO_DATA", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(DataError, match="no home folder for data; name one with --data-dir"):
        load("mnist")


def test_a_folder_that_cannot_be_looked_into_is_refused():
    with pytest.raises(DataError, match=r"cannot be looked into \(File name too long\)"):
        load("mnist", "a" * 300)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 3, 3), torch.zeros(2).long(), "images: expected"),
        (torch.zeros(2, 1, 3, 3).int(), torch.zeros(2).long(), "images: expected .* got int32"),
        (torch.zeros(2, 1, 3, 3), torch.zeros(3).long(), r"labels: expected int64 \[2\], .* got int64 \[3\]"),
        (torch.zeros(2, 1, 3, 3), torch.zeros(2), "labels: expected"),
    ],
)
def test_a_split_of_other_tensors_is_refused(images, labels, message):
    with pytest.raises(ArgumentError, match=message):
        Split(images, labels)


def test_a_dataset_cannot_be_changed():
    dataset = digits()
    assert isinstance(dataset, Dataset)
    with pytest.raises(AttributeError):
        dataset.name = "other"
    assert issubclass(DataError, LzeroError)


@pytest.mark.parametrize(("labels", "told"), [([1, 2, 3], "some from 1 to 3"), ([-1, 0, 1], "some from -1 to 1")])
def test_labels_that_count_no_class_are_refused(labels, told):
    split = Split(torch.zeros(3, 1, 2, 2), torch.tensor(labels))
    with pytest.raises(ArgumentError, match=f"labels: expected numbers from 0 to 2, .* got {told}"):
        Dataset("mine", split, split, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        ((3, 1, 8, 8), (3, 3, 8, 8), "the same channels and sizes in both parts"),
        ((3, 1, 8, 8), (2, 1, 8, 9), "the same channels and sizes in both parts"),
        ((3, 1, 8, 8), (0, 1, 8, 8), "some in both parts"),
        ((0, 1, 8, 8), (3, 1, 8, 8), "some in both parts"),
    ],
)
@pytest.mark.parametrize("classes", [(), ("a",)])
def test_parts_that_do_not_go_together_are_refused(train, test, expected, classes):
    parts = (Split(torch.zeros(*shape), torch.zeros(shape[0], dtype=torch.int64)) for shape in (train, test))
    told = re.escape(f"images: expected {expected}, got {list(train)} to train and {list(test)} to test")
    with pytest.raises(ArgumentError, match=told):
        Dataset("mine", *parts, classes)
