"""Which code gave a result."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def commit(package: Path = PACKAGE) -> str:
    """The commit of the checkout that a package is imported from, with `+` where it was changed; else nothing.

    An installed copy that lies inside some other project's checkout has no commit of its own.
    """
    if package.parent.name != "src" or not (package.parent.parent / ".git").exists() or not shutil.which("git"):
        return ""
    arguments = ("git", "-C", str(package), "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*")
    answer = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    return answer.stdout.strip() if answer.returncode == 0 else ""
