"""One file from a server is whole and right, or not there at all."""

from dataclasses import replace

import pytest

from lzero.data import DataError
from lzero.data.download import download
from tests.data.files import names
from tests.data.server import serving, wanted

CONTENT = bytes(range(256)) * 2000


@pytest.fixture
def server():
    with serving({"file": CONTENT}) as running:
        yield running


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
@pytest.mark.parametrize("way", ["good", "plain", "silent"])
def test_a_file_arrives_whole(way, algorithm, server, tmp_path):
    told = []
    path = download(wanted(server, way, algorithm=algorithm), tmp_path / "new", lambda *news: told.append(news))
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["file"]
    assert told[-1] == ("file", len(CONTENT), 0 if way == "silent" else len(CONTENT))


def test_what_is_here_and_right_is_not_asked_for(server, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    download(wanted(server, "good"), tmp_path)
    assert not server.asked


def test_what_is_here_and_wrong_is_replaced(server, tmp_path):
    (tmp_path / "file").write_bytes(b"damaged")
    assert download(wanted(server, "good"), tmp_path).read_bytes() == CONTENT


def test_a_part_is_resumed(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    assert download(wanted(server, "good"), tmp_path).read_bytes() == CONTENT
    assert server.asked == [("good", "file", "bytes=1000-")]
    assert names(tmp_path) == ["file"]


def test_a_part_that_is_everything_is_kept(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert download(wanted(server, "good"), tmp_path).read_bytes() == CONTENT
    assert len(server.asked) == 1


@pytest.mark.parametrize("part", [b"x" * 1000, CONTENT + b"more"], ids=["of another file", "too long"])
def test_a_wrong_part_is_thrown_away_and_the_file_fetched_anew(part, server, tmp_path):
    (tmp_path / "file.part").write_bytes(part)
    assert download(wanted(server, "good"), tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("good", "file", None)


def test_a_server_that_ignores_the_range_replaces_the_part(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    assert download(wanted(server, "plain"), tmp_path).read_bytes() == CONTENT
    assert server.asked == [("plain", "file", "bytes=1000-")]


def test_a_cut_connection_is_resumed_at_the_next_mirror(server, tmp_path):
    assert download(wanted(server, "cut", "good"), tmp_path).read_bytes() == CONTENT
    assert server.asked[-1] == ("good", "file", f"bytes={len(CONTENT) // 2}-")


def test_a_cut_connection_leaves_only_the_part(server, tmp_path):
    with pytest.raises(DataError, match=f"ended after {len(CONTENT) // 2} of {len(CONTENT)} bytes"):
        download(wanted(server, "cut"), tmp_path)
    assert names(tmp_path) == ["file.part"]


@pytest.mark.parametrize("first", ["gone", "wrong", "down"])
def test_the_second_mirror_is_used_when_the_first_fails(first, server, tmp_path):
    item = wanted(server, first, "good")
    if first == "down":
        item = replace(item, addresses=("http://127.0.0.1:1/file", *item.addresses[1:]))
    assert download(item, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["file"]


def test_a_wrong_digest_leaves_nothing_and_all_that_was_tried_is_told(server, tmp_path):
    with pytest.raises(DataError, match=r"(?s)tried:.*/wrong/file: its sha256 is .*, expected .*/gone/file: .*404"):
        download(wanted(server, "wrong", "gone"), tmp_path)
    assert names(tmp_path) == []


def test_a_file_in_the_place_of_the_folder_is_refused(server, tmp_path):
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(DataError, match="cannot be written"):
        download(wanted(server, "good"), tmp_path / "folder")
