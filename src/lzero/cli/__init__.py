"""The command line: `lzero --help`."""

from lzero.cli import data, reproduce, train  # noqa: F401 (they add their commands)
from lzero.cli.app import app

__all__ = ["app"]
