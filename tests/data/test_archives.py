"""Archives give their files and nothing else."""

import gzip
import tarfile

import pytest

from lzero.data import DataError
from lzero.data.archives import unpack_tar
from tests.data.files import SMALL_CIFAR10, cifar10_files, names, tar


def link(kind):
    info = tarfile.TarInfo("cifar-10-batches-bin/link")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


EVIL = {
    "a path upwards": ({"../data_batch_1.bin": b"x"}, "leads out of the folder"),
    "a path that turns upwards": ({"a/../../b": b"x"}, "leads out of the folder"),
    "an absolute path": ({"/tmp/data_batch_1.bin": b"x"}, "leads out of the folder"),  # noqa: S108
    "a symbolic link": ({"l": link(tarfile.SYMTYPE)}, "is a link or a device"),
    "a hard link": ({"l": link(tarfile.LNKTYPE)}, "is a link or a device"),
    "a device": ({"l": link(tarfile.CHRTYPE)}, "is a link or a device"),
}


@pytest.mark.parametrize(("members", "message"), EVIL.values(), ids=EVIL)
def test_an_archive_that_leaves_its_folder_is_refused_whole(members, message, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(tar(cifar10_files() | members))
    with pytest.raises(DataError, match=message):
        unpack_tar(tmp_path / "a.tar.gz", tmp_path / "out", SMALL_CIFAR10.files)
    assert names(tmp_path) == ["a.tar.gz"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a whole tar archive"),
        (b"not a tar archive", "not a whole tar archive"),
        (tar(cifar10_files())[:5000], "not a whole tar archive"),
        (tar({"data_batch_1.bin": b""}), r"lacks data_batch_2\.bin"),
        (gzip.compress(b"not a tar archive"), "not a whole tar archive"),
    ],
)
def test_a_damaged_archive_is_refused(data, message, tmp_path):
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(DataError, match=message):
        unpack_tar(tmp_path / "a.tar.gz", tmp_path / "out", SMALL_CIFAR10.files)
    assert names(tmp_path) == ["a.tar.gz"]
