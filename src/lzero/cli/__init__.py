"""The command line: `lzero --help`."""

from lzero.cli import compact, data, export, measure, plan, reproduce, sweep, train  # noqa: F401 (they add their commands)
from lzero.cli.app import app

__all__ = ["app"]
