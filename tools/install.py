"""Make .venv and install lzero with its development extras, once per state of the files that decide it.

Safe to run twice or at once: a lock lets one process install while the others wait, and a stamp inside
.venv, written last, says which state of the files is installed.
"""

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "installed"
DECIDED_BY = ("pyproject.toml", "constraints.txt", "tools/install.py")


def wanted_state() -> str:
    """A digest of the interpreter, the place, and the files that decide what is installed."""
    digest = hashlib.sha256(f"{sys.version} {ROOT}".encode())
    for name in DECIDED_BY:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def is_current(state: str) -> bool:
    """Whether .venv holds this state already."""
    return STAMP.is_file() and STAMP.read_text() == state


def install(state: str) -> None:
    """Create .venv anew where the last attempt did not finish, install, and stamp it."""
    print("Setting up .venv (a few minutes the first time) …", flush=True)
    venv.create(VENV, with_pip=True, clear=not STAMP.exists())
    STAMP.unlink(missing_ok=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", "constraints.txt", "--editable", ".[dev]"], cwd=ROOT, check=True)
    STAMP.write_text(state)


def main() -> None:
    """Install unless the wanted state is there."""
    if sys.version_info < (3, 11):  # noqa: UP036 (this file is how an old one is found out)
        sys.exit(f"lzero needs Python 3.11 or newer, this is {sys.version.split()[0]}; try: make PYTHON=python3.12 …")
    state = wanted_state()
    if is_current(state):
        return
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current(state):
            install(state)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"The installation failed (pip exited with {error.returncode}); its message is above.")
