"""Which code gave a result."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


@cache
def commit(package: Path = PACKAGE) -> str:
    """The commit of the checkout that a package is imported from, with `+` where its files changed; else nothing.

    An installed copy that lies inside some other project's checkout has no commit of its own. It is asked for once: the
    code of a process stays what it was when it began.
    """
    if package.parent.name != "src" or not (package.parent.parent / ".git").exists():
        return ""
    try:
        head = _git(package, "rev-parse", "--short=7", "HEAD")
        return head + "+" * bool(_git(package, "status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):  # no git, a folder it does not trust, a disk that does not answer
        return ""


def _git(folder: Path, *arguments: str) -> str:
    """What git answers about a folder."""
    command = ("git", "-C", str(folder), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603
