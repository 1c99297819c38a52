"""Small datasets written in the formats of the large ones."""

import gzip
import io
import struct
import tarfile
from dataclasses import replace

import torch

from lzero.data.sources import CIFAR10, CIFAR100, IDX_TEST, IDX_TRAIN, MNIST

SMALL_MNIST = replace(MNIST, counts=(6, 3), begins=(), package=None, downloads=())
SMALL_CIFAR10 = replace(CIFAR10, counts=(10, 3), begins=(), downloads=())
SMALL_CIFAR100 = replace(CIFAR100, counts=(4, 3), begins=(), downloads=())


def idx(values, kind=8):
    """The bytes of an IDX file."""
    shape = values.shape
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, kind, len(shape), *shape) + values.numpy().tobytes()


def pictures(count, *shape):
    return torch.randint(256, (count, *shape), dtype=torch.uint8)


def classes(count, below):
    return torch.randint(below, (count,), dtype=torch.uint8)


def mnist_files(counts=(6, 3)):
    """The four files of MNIST with fewer images, by name."""
    files = {}
    for (images, labels), count in zip((IDX_TRAIN, IDX_TEST), counts, strict=True):
        files |= {images: idx(pictures(count, 28, 28)), labels: idx(classes(count, 10))}
    return files


def cifar(count, *below):
    """The bytes of a CIFAR file whose labels have so many values."""
    labels = [classes(count, limit)[:, None] for limit in below]
    return torch.cat([*labels, pictures(count, 3072)], dim=1).numpy().tobytes()


def cifar10_files():
    return {file: cifar(2, 10) for file in CIFAR10.train} | {"test_batch.bin": cifar(3, 10)}


def cifar100_files():
    return {"train.bin": cifar(4, 20, 100), "test.bin": cifar(3, 20, 100)}


SMALL = {
    "mnist": (SMALL_MNIST, mnist_files),
    "cifar10": (SMALL_CIFAR10, cifar10_files),
    "cifar100": (SMALL_CIFAR100, cifar100_files),
}


def put(folder, files, *, packed=False):
    """Write files by name, each as gzip where asked."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(data) if packed else data)


def names(folder):
    return sorted(path.name for path in folder.rglob("*"))


def tar(members):
    """A tar archive of files by name; a name that maps to a TarInfo is taken as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in members.items():
            info = data if isinstance(data, tarfile.TarInfo) else tarfile.TarInfo(name)
            content = b"" if info is data else data
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
