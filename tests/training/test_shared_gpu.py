"""Processes share a GPU by a service that lives exactly as long as it is needed. Here its command is a stand-in."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lzero.training.shared_gpu import CONTROL, PLACE, PROBE, shared_gpu

STAND_IN = """#!/bin/sh
if [ "$1" = -d ]; then echo "begin $CUDA_MPS_PIPE_DIRECTORY" >> {log}; exit {status}; fi
echo "told: $(cat)" >> {log}
"""
ASKS = """
import time
from lzero.training.shared_gpu import shared_gpu
with shared_gpu(2):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What the stand-in was told; it alone and the shell's commands are found."""
    return install(tmp_path, monkeypatch, status=0)


def install(folder, monkeypatch, *, status):
    command, log = folder / CONTROL, folder / "log"
    command.write_text(STAND_IN.format(log=log, status=status))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv(PLACE, raising=False)
    monkeypatch.setattr("lzero.training.shared_gpu.PROBE", "pass")  # here is no GPU to get a context on
    return log


def test_the_service_runs_while_it_is_needed(log):
    with shared_gpu(2) as environment:
        place = Path(environment[PLACE])
        assert place.is_dir()
        assert log.read_text() == f"begin {place}\n"
    assert log.read_text() == f"begin {place}\ntold: quit -t 5\n"
    assert not place.exists()


def test_the_service_ends_when_trainings_fail(log):
    with pytest.raises(RuntimeError), shared_gpu(2):
        raise RuntimeError
    assert log.read_text().endswith("told: quit -t 5\n")


def test_the_service_ends_with_the_process_that_asked(log):
    asked = subprocess.Popen([sys.executable, "-c", ASKS], stdout=subprocess.PIPE)
    assert asked.stdout.readline() == b"ready\n"
    asked.send_signal(signal.SIGKILL)
    asked.wait()
    asked.stdout.close()
    until = time.monotonic() + 20
    while "quit" not in log.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert log.read_text().endswith("told: quit -t 5\n")


def test_a_service_that_does_not_start_is_none(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, status=1)
    with shared_gpu(2) as environment:
        assert environment is None


def test_a_service_by_which_no_process_gets_a_context_is_none_and_ends(log, monkeypatch):
    monkeypatch.setattr("lzero.training.shared_gpu.PROBE", "raise SystemExit(1)")
    with shared_gpu(2) as environment:
        assert environment is None
    assert log.read_text().endswith("told: quit -t 5\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU gives a context")
def test_without_a_gpu_no_process_gets_a_context():
    assert subprocess.run([sys.executable, "-c", PROBE], stderr=subprocess.DEVNULL, check=False).returncode != 0


def test_without_the_command_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(PLACE, raising=False)
    with shared_gpu(2) as environment:
        assert environment is None


def test_one_that_runs_already_is_left_alone(log, monkeypatch):
    monkeypatch.setenv(PLACE, "elsewhere")
    with shared_gpu(2) as environment:
        assert environment == {}
        assert os.environ[PLACE] == "elsewhere"
    assert not log.exists()


def test_one_process_needs_none(log):
    with shared_gpu(1) as environment:
        assert environment == {}
    assert not log.exists()
