"""Which code gave a result."""

from __future__ import annotations

import os
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
    """What git answers about a folder, whatever repository the environment names, and without a lock."""
    command = ("git", "-C", str(folder), "--no-optional-locks", *arguments)
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    answer = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=10)  # noqa: S603
    return answer.stdout.strip()
