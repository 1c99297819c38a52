"""No malformed file gets through, and each is refused with what is wrong."""

import gzip
import shutil
import struct

import pytest
import torch

from lzero.data import DataError
from lzero.data import raw as raw_module
from lzero.data.loading import read
from tests.data.files import SMALL, cifar, classes, idx, pictures, put

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
GOOD_IMAGES, GOOD_LABELS = idx(torch.zeros(6, 28, 28, dtype=torch.uint8)), idx(torch.zeros(6, dtype=torch.uint8))


def header(kind, *shape):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape)


def labelled(label, count=6):
    return idx(torch.cat([torch.zeros(count - 1, dtype=torch.uint8), torch.tensor([label], dtype=torch.uint8)]))


def with_label(data, at, label):
    return data[:at] + bytes([label]) + data[at + 1 :]


ZIPPED = gzip.compress(GOOD_IMAGES)

# dataset, file, its bytes, what the message says
BAD = {
    "images: empty": ("mnist", IMAGES, b"", "empty"),
    "images: three bytes": ("mnist", IMAGES, b"\0\0\x08", "only 3 bytes long"),
    "images: text": ("mnist", IMAGES, b"<html>not found</html>", "not an IDX file: begins with 3c68746d"),
    "images: first byte of the magic": ("mnist", IMAGES, b"\1" + GOOD_IMAGES[1:], "not an IDX file"),
    "images: little-endian": ("mnist", IMAGES, b"\x03\x08\0\0" + GOOD_IMAGES[4:], "not an IDX file"),
    "images: unknown type": ("mnist", IMAGES, header(0x0A, 6, 28, 28) + GOOD_IMAGES[16:], "not an IDX file"),
    "images: floats": ("mnist", IMAGES, header(0x0D, 6, 28, 28) + GOOD_IMAGES[16:], "holds float32, expected uint8"),
    "images: signed": ("mnist", IMAGES, header(0x09, 6, 28, 28) + GOOD_IMAGES[16:], "holds int8, expected uint8"),
    "images: labels in their place": ("mnist", IMAGES, GOOD_LABELS, "1 dimensions, expected 3 for images"),
    "images: no dimensions": ("mnist", IMAGES, header(8), "0 dimensions, expected 3"),
    "images: 255 dimensions": ("mnist", IMAGES, b"\0\0\x08\xff" + bytes(1020), "255 dimensions, expected 3"),
    "images: ends in the header": ("mnist", IMAGES, GOOD_IMAGES[:11], "ends within its header, after 11 of 16"),
    "images: nothing after the header": ("mnist", IMAGES, GOOD_IMAGES[:16], "promises 4704 bytes .* but 0 follow"),
    "images: truncated": ("mnist", IMAGES, GOOD_IMAGES[:-1], "promises 4704 bytes for 6×28×28, but 4703 follow"),
    "images: too long": ("mnist", IMAGES, GOOD_IMAGES + b"\0", "but 4705 follow"),
    "images: none": ("mnist", IMAGES, header(8, 0, 28, 28), "says 0×28×28, which is nothing"),
    "images: no width": ("mnist", IMAGES, header(8, 6, 28, 0), "says 6×28×0, which is nothing"),
    "images: huge": ("mnist", IMAGES, header(8, *[2**32 - 1] * 3) + bytes(9), "promises 79228162458924105385300197375"),
    "images: huge by one dimension": ("mnist", IMAGES, header(8, 2**31, 28, 28) + GOOD_IMAGES[16:], "but 4704 follow"),
    "images: five for six labels": ("mnist", IMAGES, idx(pictures(5, 28, 28)), "6 labels for the 5 images"),
    "images: gzip within gzip": ("mnist", f"{IMAGES}.gz", gzip.compress(ZIPPED), "not an IDX file: begins with 1f8b"),
    "images: not gzip": ("mnist", f"{IMAGES}.gz", GOOD_IMAGES, "not a gzip file, though its name says so"),
    "images: empty gzip": ("mnist", f"{IMAGES}.gz", b"", "not a gzip file"),
    "images: truncated gzip": ("mnist", f"{IMAGES}.gz", ZIPPED[:-20], "cannot be read"),
    "images: gzip header alone": ("mnist", f"{IMAGES}.gz", ZIPPED[:2], "cannot be read"),
    "images: damaged gzip": ("mnist", f"{IMAGES}.gz", ZIPPED[:10] + b"\xff" * 20 + ZIPPED[30:], "cannot be read"),
    "images: gzip of wrong checksum": (
        "mnist",
        f"{IMAGES}.gz",
        ZIPPED[:-8] + b"1234" + ZIPPED[-4:],
        "CRC check failed",
    ),
    "images: rubbish after gzip": ("mnist", f"{IMAGES}.gz", ZIPPED + b"rubbish", "cannot be read"),
    "labels: out of range": ("mnist", LABELS, labelled(10), "record 5 has label 10, expected 0 to 9"),
    "labels: far out of range": ("mnist", LABELS, labelled(255), "record 5 has label 255, expected 0 to 9"),
    "labels: too few": ("mnist", LABELS, labelled(0, 5), "5 labels for the 6 images in train-images"),
    "labels: too many": ("mnist", LABELS, labelled(0, 7), "7 labels for the 6 images"),
    "labels: images in their place": ("mnist", LABELS, GOOD_IMAGES, "3 dimensions, expected 1 for labels"),
    "labels: 32 bits wide": ("mnist", LABELS, header(0x0C, 6) + bytes(24), "holds int32, expected uint8"),
    "cifar10: empty": ("cifar10", "data_batch_3.bin", b"", "empty"),
    "cifar10: truncated": ("cifar10", "data_batch_3.bin", cifar(2, 10)[:-1], "1 records of 3073 bytes and 3072 bytes"),
    "cifar10: too long": (
        "cifar10",
        "test_batch.bin",
        cifar(3, 10) + b"\0",
        "3 records of 3073 bytes and 1 bytes more",
    ),
    "cifar10: a record missing": ("cifar10", "data_batch_1.bin", cifar(1, 10), "9 images, expected 10 for cifar10"),
    "cifar10: CIFAR-100 in its place": ("cifar10", "test_batch.bin", cifar(3, 20, 100), "truncated or another format"),
    "cifar10: label": ("cifar10", "data_batch_2.bin", with_label(cifar(2, 10), 3073, 10), "record 1 has label 10"),
    "cifar10: pickled": ("cifar10", "data_batch_1.bin", b"\x80\x02}q\x01", "truncated or another format"),
    "cifar100: truncated": ("cifar100", "train.bin", cifar(4, 20, 100)[:-3000], "3 records of 3074 bytes and 74"),
    "cifar100: CIFAR-10 in its place": ("cifar100", "train.bin", cifar(4, 10), "truncated or another format"),
    "cifar100: fine": ("cifar100", "test.bin", with_label(cifar(3, 20, 100), 1, 100), "record 0 has label 100"),
    "cifar100: coarse": (
        "cifar100",
        "test.bin",
        with_label(cifar(3, 20, 100), 3074, 20),
        "record 1 has coarse label 20",
    ),
}


def test_there_are_many_kinds_of_damage():
    assert len(BAD) >= 40


@pytest.mark.parametrize(("name", "file", "data", "message"), BAD.values(), ids=BAD)
def test_a_malformed_file_is_refused_by_name(name, file, data, message, tmp_path):
    source, files = SMALL[name]
    put(tmp_path, files())
    (tmp_path / file).write_bytes(data)
    with pytest.raises(DataError, match=message) as caught:
        read(source, tmp_path)
    assert file.removesuffix(".gz").removesuffix("-images-idx3-ubyte") in str(caught.value)


@pytest.mark.parametrize("name", SMALL)
def test_a_folder_in_the_place_of_a_file_is_refused(name, tmp_path):
    source, files = SMALL[name]
    put(tmp_path, files())
    path = tmp_path / source.test[-1]
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=f"{path.name}: cannot be read .*directory"):
        read(source, tmp_path)


@pytest.mark.parametrize("name", SMALL)
def test_a_file_in_the_place_of_the_folder_is_refused(name, tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataError, match="is neither in"):
        read(SMALL[name][0], tmp_path / "data")


def test_a_small_file_that_unpacks_to_a_huge_one_is_given_up(tmp_path):
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(10_000)))
    with pytest.raises(DataError, match="more than 9999 bytes"):
        raw_module.contents(tmp_path / "bomb.gz", largest=9999)
    assert len(raw_module.contents(tmp_path / "bomb.gz", largest=10_000)) == 10_000


def test_a_file_cut_anywhere_is_refused(tmp_path):
    source, files = SMALL["mnist"]
    put(tmp_path, files())
    whole = idx(classes(6, 10))
    for length in range(len(whole)):
        (tmp_path / LABELS).write_bytes(whole[:length])
        with pytest.raises(DataError, match=LABELS):
            read(source, tmp_path)
    shutil.rmtree(tmp_path)
