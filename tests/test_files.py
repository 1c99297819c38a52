"""Files that are there whole or not at all."""

import gzip

import pytest

from lzero import LzeroError
from lzero.files import write_atomically


def test_an_error_without_a_number_is_told_in_its_words(tmp_path):
    with (
        pytest.raises(LzeroError, match=r"cannot write .*a\.txt: CRC check failed"),
        write_atomically(tmp_path / "a.txt"),
    ):
        raise gzip.BadGzipFile("CRC check failed")
    assert not list(tmp_path.iterdir())
