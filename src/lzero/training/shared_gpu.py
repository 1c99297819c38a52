"""One GPU for several processes at once, by NVIDIA's Multi-Process Service (MPS).

Without it, processes take turns on a GPU. Small networks leave most of it idle in their turn.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
PLACE = "CUDA_MPS_PIPE_DIRECTORY"  # by which processes find the service
# The service ends when its input does: also when the process that asked for it is killed.
SERVE = f"""
{CONTROL} -d && echo ready && cat > /dev/null
echo quit -t 5 | {CONTROL} > /dev/null
rm -rf "${PLACE}"
"""

# A process that gets a context on the GPU, quickly. Where there is no permission for the service, none does.
PROBE = """
import ctypes, sys
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
sys.exit(bool(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)))
"""


@contextmanager
def shared_gpu(processes: int) -> Iterator[Mapping[str, str] | None]:
    """What the environment of processes must hold to use the GPU at once; None where they cannot.

    A service that runs already, named by `CUDA_MPS_PIPE_DIRECTORY`, is used and left alone. One process needs none.

    >>> with shared_gpu(1) as environment:
    ...     environment
    {}
    """
    if processes <= 1 or PLACE in os.environ:
        yield {}
    elif shutil.which(CONTROL) is None:
        yield None
    else:
        with tempfile.TemporaryDirectory(prefix="lzero-mps-", ignore_cleanup_errors=True) as folder:
            environment = {PLACE: folder, "CUDA_MPS_LOG_DIRECTORY": folder}
            with _service(environment) as started:
                yield environment if started and _works(environment) else None


@contextmanager
def _service(environment: Mapping[str, str]) -> Iterator[bool]:
    """The service, for as long as it is needed; whether it could be started."""
    server = subprocess.Popen(  # noqa: S603 (a command of ours)
        ["/bin/sh", "-c", SERVE],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the trainings, which still need it to end
    )
    assert server.stdin is not None  # noqa: S101 (asked for above, as the next)
    assert server.stdout is not None  # noqa: S101
    try:
        yield server.stdout.readline() == b"ready\n"
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


def _works(environment: Mapping[str, str]) -> bool:
    """Whether a process can use the GPU by the service."""
    try:
        subprocess.run(  # noqa: S603 (a command of ours)
            [sys.executable, "-c", PROBE],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
    except subprocess.SubprocessError:
        return False
    return True
