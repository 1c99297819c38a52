"""The errors lzero raises: what was expected, what came, what to do."""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import torch


class LzeroError(Exception):
    """Base of every error that lzero raises on purpose."""


class ArgumentError(LzeroError, ValueError):
    """An argument cannot be used; nothing has been changed.

    >>> raise ArgumentError.about("beta", expected="a number above 0", got=-1.0)
    Traceback (most recent call last):
    lzero.errors.ArgumentError: beta: expected a number above 0, got -1.0
    """

    @classmethod
    def about(cls, argument: str, *, expected: str, got: object, advice: str | None = None) -> ArgumentError:
        """The error for one argument, in the one form all of them have."""
        message = f"{argument}: expected {expected}, got {got}"
        return cls(f"{message}; {advice}" if advice else message)


def did_you_mean(
    name: object, known: Iterable[str], *, spelt: Mapping[str, str] = MappingProxyType({}), otherwise: str = ""
) -> str:
    """The advice for a name that nobody knows: the nearest one, spelt as it has to be.

    >>> did_you_mean("Minst", ["mnist", "cifar10"])
    'did you mean mnist?'
    """
    near = difflib.get_close_matches(str(name).lower(), list(known), n=1, cutoff=0.5)
    return f"did you mean {spelt.get(near[0], near[0])}?" if near else otherwise


class UnsupportedError(LzeroError, NotImplementedError):
    """What was asked for does not exist for these objects."""


class MissingExtraError(LzeroError, ImportError):
    """An optional dependency is not installed.

    >>> raise MissingExtraError.of("matplotlib", extra="plots")
    Traceback (most recent call last):
    lzero.errors.MissingExtraError: this needs matplotlib, which is not installed; run: pip install "lzero[plots]"
    """

    @classmethod
    def of(cls, package: str, *, extra: str) -> MissingExtraError:
        """The error that names the extra to install."""
        return cls(f'this needs {package}, which is not installed; run: pip install "lzero[{extra}]"')


class VerificationError(LzeroError):
    """Two models that should be equal are not."""


class NotFiniteError(LzeroError, ArithmeticError):
    """The loss or the gates are no numbers any more; nothing after this step is worth keeping."""


class FileError(LzeroError):
    """A file cannot be used: damaged, of a newer version, or of another model."""


class ExportError(LzeroError):
    """A model cannot be written in this format, or what was written is not the model."""


class BudgetWarning(UserWarning):
    """A budget is met, or will be, only by closing gates that are in use."""


def described(error: Exception) -> str:
    """The first line of what an error says, and the line of the model's code that raised it."""
    said = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
    libraries = tuple(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parent))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(libraries)]
    return f"{said}, in {Path(frames[-1].filename).name}:{frames[-1].lineno}: {frames[-1].line}" if frames else said
