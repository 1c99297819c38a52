"""The benchmarks run, on a small scale; their times are never asserted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_sampling_prints_ratios_and_memory():
    command = [sys.executable, BENCHMARKS / "sampling.py", "--gates", "2000", "--repeats", "1"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert list(rows) == ["eager", "compiled"]
    for ratio, kept, _ in rows.values():
        assert ratio.endswith("×")
        assert int(kept) <= 2


def test_latency_of_compacted_networks_is_a_share_of_the_dense_one():
    command = [sys.executable, BENCHMARKS / "compacted_latency.py", "--repeats", "1", "--only", "by layer"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line for line in lines if "by layer" in line]
    assert len(rows) == 2
    assert all(row.count("×") == 3 for row in rows)


def test_narrower_blocks_are_shares_of_the_whole_one():
    command = [sys.executable, BENCHMARKS / "block_widths.py", "--batch", "1", "--every", "160", "--repeats", "1"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    widths = [line.split()[1] for line in lines if "inside" in line]
    assert widths == ["160", "320", "160", "640", "480", "320", "160"]
    assert [line for line in lines if "inside | 1.00× | 1.00×" in line] == [lines[4], lines[8], lines[13]]


def test_selections_of_features_are_judged_alike():
    command = [sys.executable, BENCHMARKS / "feature_selection.py", "--seeds", "1", "--only", "largest F"]
    *_, row = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    name, *scores, found = row.strip("| ").split(" | ")
    assert name == "largest F statistic"
    assert [40 < float(score) <= 100 for score in scores] == [True] * 3
    assert int(found) <= 3


def test_architectures_are_cut_exactly_and_unknown_ones_are_refused():
    command = [sys.executable, BENCHMARKS / "architectures.py"]
    done = subprocess.run([*command, "segformer", "t5, encoder"], capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines()[4:]]
    assert [row[0] for row in rows] == ["| segformer", "| t5, encoder"]
    assert all(row[3] == "as it is" and float(row[4].rstrip("| ")) < 1e-12 for row in rows)
    refused = subprocess.run([*command, "alexnet"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "expected names from the list, got alexnet" in refused.stderr


@pytest.mark.parametrize("command", ["training_speed.py lenet", "torch_pruning_tradeoff.py mnist-lenet5-dense"])
def test_data_is_looked_for_where_it_is_fetched_to(command, tmp_path):
    script, *arguments = command.split()
    where = {**os.environ, "LZERO_DATA": str(tmp_path / "fetched")}
    command = [sys.executable, BENCHMARKS / script, *arguments]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=where).stderr
    assert f"is neither in {tmp_path}/fetched/mnist nor in {tmp_path}/fetched;" in said


def test_penalties_alone_push_gates_down_and_decay_more_than_the_papers_l0():
    command = [sys.executable, BENCHMARKS / "penalty_drift.py", "--epochs", "2"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    least = {tuple(line.split(" | ")[:2]): float(line.split(" | ")[3].split(" to ")[0]) for line in lines[2:]}
    assert list(least) == [(f"| {k}", name) for k in (0.001, 0.002) for name in ("L0", "L0 and Eq. 17")]
    weak, weak_decay, strong, strong_decay = least.values()
    assert 0.85 > weak >= strong > weak_decay >= strong_decay
