"""The page of a sweep: what each combination costs and gives, in a table and in pictures where there are any."""

import json
import re

import pytest

import lzero
from lzero.report.sweep_figures import figure_of
from lzero.report.sweep_page import write_sweep
from lzero.report.sweeps import combinations, line
from tests.report.runs import write_run
from tests.report.test_page import words


def rows(over, seeds=3):
    """Larger targets leave more and err less; seeds differ by a thousandth."""
    return [
        {
            **settings, "training.seed": seed, "params": 10, "macs": 10, "error": 0.05 / (k + 1) + 0.001 * seed,
            "latency": 0.1, "params_share": 0.3 + 0.1 * k, "macs_share": 0.2 + 0.1 * k, "epochs": 1, "seconds": 2.0,
        }
        for k, settings in enumerate(over) for seed in range(seeds)
    ]  # fmt: skip


TARGETS = [{"objective.target": target, "gates.lr": lr} for lr in (0.05, 0.1) for target in (0.1, 0.2, 0.4)]


def written(folder, *, over=TARGETS, seeds=3):
    (folder / "sweep.json").write_text(json.dumps(rows(over, seeds)))
    return write_sweep(folder).read_text(encoding="utf-8")


def test_means_and_intervals_over_seeds():
    combined = combinations(rows(TARGETS))
    assert [each.settings for each in combined] == TARGETS
    assert line(combined[0]) == ("0.1", "0.05", "5.10%", "0.25%", "20.0%", "30.0%")
    assert line(combinations(rows(TARGETS, seeds=2))[0])[3] == "–"


def test_a_page_says_what_was_best_and_shows_it(tmp_path):
    write_run(tmp_path / "target=0.1,lr=0.05,seed=0")
    html = written(tmp_path)
    text = words(html)
    assert "smallconv on digits, over objective.target and gates.lr" in text
    best = "that of target 0.4, lr 0.1: 0.93 %, with 70 % of the MACs and 80 % of the parameters."
    assert f"18 trainings. The least error is {best}" in text
    assert "0.2 0.05 2.60% 0.25% 30.0% 40.0%" in text
    assert "errors on the test part" in text
    assert html.count("data:image/svg+xml;base64,") == 2  # for light and dark pages
    assert {path.name for path in tmp_path.glob("sweep*.*g")} == {
        f"sweep{d}.{f}" for d in ("", "-dark") for f in ("svg", "png")
    }


def test_held_out_errors_may_be_chosen_by(tmp_path):
    write_run(tmp_path / "target=0.1,lr=0.05,seed=0", changes=["data.held_out=0.1"])
    assert "on the test part" not in written(tmp_path)


def labels(figure):
    return [(axes.get_xlabel(), axes.get_ylabel(), len(axes.lines)) for axes in figure.axes]


def test_error_is_drawn_against_size_and_over_the_setting_that_varies_most():
    assert labels(figure_of(combinations(rows(TARGETS)))) == [
        ("MACs left, %", "error, %", 2),
        ("parameters left, %", "error, %", 2),
        ("objective.target", "error, %", 2),
        ("objective.target", "MACs left, %", 2),
    ]


@pytest.mark.parametrize(
    ("over", "lines"),
    [
        ([{"optimizer.kind": "adam"}, {"optimizer.kind": "sgd"}], [2, 2]),  # no numbers: points by size
        ([{"objective.target": "10%"}, {"objective.target": "5%"}], [1, 1, 1, 1]),
        ([{"model.options": {"widths": [1, 2]}}, {"model.options": {"widths": [3, 4]}}], [2, 2]),
        ([{"training.average": True}, {"training.average": False}], [2, 2]),
    ],
)
def test_settings_that_are_no_numbers_are_names_of_lines(over, lines):
    axes = figure_of(combinations(rows(over))).axes
    assert [len(each.get_legend_handles_labels()[1]) for each in axes] == lines


def test_where_nothing_can_be_drawn_there_is_the_table(tmp_path):
    html = written(tmp_path, over=[{"optimizer.kind": "adam"}])
    assert "<img" not in html
    assert "A sweep, over optimizer.kind" in words(html)
    assert "optimizer.kind" not in words(written(tmp_path, over=[{}]))  # seeds alone


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("{", "sweep.json: damaged, not the table of a sweep"),
        ("[3]", "sweep.json: damaged, not the table of a sweep (expected a list of rows)"),
        ("[]", "expected a sweep with trainings that are finished, got none"),
        ('[{"gates.lr": 1, "error": 0.1}]', "expected a row with gates.lr, error, macs_share, params_share, got"),
        (None, "expected a sweep with trainings that are finished, got none"),
    ],
)
def test_what_is_no_sweep_is_refused(table, message, tmp_path):
    if table is not None:
        (tmp_path / "sweep.json").write_text(table)
    with pytest.raises(lzero.LzeroError, match=re.escape(message)):
        write_sweep(tmp_path)
    assert not (tmp_path / "sweep.html").exists()
