"""What holds for the examples in the documentation as well as for the tests."""

import pytest
from _pytest.doctest import DoctestItem


@pytest.fixture(autouse=True)
def _examples_write_to_a_folder_of_their_own(request, tmp_path, monkeypatch):
    if isinstance(request.node, DoctestItem):
        monkeypatch.chdir(tmp_path)
