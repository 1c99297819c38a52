"""`python -m lzero`."""

from lzero.cli import app

app()
