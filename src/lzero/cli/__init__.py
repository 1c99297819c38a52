"""The command line: `lzero --help`."""

from lzero.cli import (  # noqa: F401 (they add their commands)
    bench,
    compact,
    data,
    export,
    measure,
    plan,
    report,
    reproduce,
    sweep,
    train,
)
from lzero.cli.app import app

__all__ = ["app"]
