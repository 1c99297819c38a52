"""Figures of trainings: what is drawn is what was recorded, on light pages and on dark ones."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from lzero.errors import ArgumentError, LzeroError
from lzero.report.density_figures import figure_c2, trade_off
from lzero.report.drawing import COLOURS, DARK, GREY, LIGHT, save, save_all
from lzero.report.paper_figures import figure_1, figure_2
from lzero.report.paper_networks import LENET, MLP, architecture_share, dropout_share
from lzero.report.seeds import interval, told
from lzero.report.training_figures import figure_3, figure_4, figure_c1
from lzero.reproduce.records import Record

DENSE = 1000


def record(row, seed=0, *, final=0.02, share=0.5, **curves):
    """A training whose numbers fall as epochs pass."""
    count = max((len(numbers) for numbers in curves.values()), default=4)
    falling = [0.8 / (epoch + seed + 1) for epoch in range(count)]
    whole = {"epoch": [float(epoch + 1) for epoch in range(count)], "macs": falling, "loss": falling, "error": falling}
    return Record(
        row, seed, "", final, final, round(2000 * share**2), round(DENSE * share), 2000, DENSE, 1.0, 1.0, {}, {}, count,
        1.0, "two cores", whole | {name.replace("_", " "): numbers for name, numbers in curves.items()},
    )  # fmt: skip


def lines(axes):
    return {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in axes.lines}


def legend_texts(figure):
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    return {text.get_text() for legend in legends for text in legend.get_texts()}


def target_row(target, kind, seed=0, *, final=0.02, **curves):
    reached = {"expected_l0": [0.9, target / 100 + 0.002 * seed]}
    return record(f"ε = {target}% of {kind}", seed, final=final, **(reached | curves))


def every_figure():
    rows = [record(row, seed) for row in ("λ = 0.1/N", "λ sep.") for seed in range(2)]
    dynamics = [record(row, expected_l0=[0.8, 0.33], multiplier_l0=[0.0, 1.0]) for row in ("with", "without")]
    targets = [target_row(target, kind) for target in (5, 50) for kind in ("the model", "each layer")]
    points = {"Sparse VD": (0.25, 0.018)}
    return [
        figure_3(rows, rows), figure_4(rows, rows), figure_c1(dynamics), figure_c2(targets, targets),
        trade_off({"ours": rows}, points),
    ]  # fmt: skip


def test_figure_3_draws_expected_macs_beside_the_original_and_dropout():
    seeds = [record("λ = 0.1/N", seed) for seed in range(3)]
    figure = figure_3([*seeds, record("ε = 33 %")], [record("λ sep.")])
    left, right = (lines(axes) for axes in figure.axes)
    assert left.keys() == {"original", "dropout 0.2-0.5-0.5", "λ = 0.1/N"}
    assert right.keys() == {"original", "dropout 0.5-0.5-0.5-0.5", "λ sep."}
    np.testing.assert_allclose(left["λ = 0.1/N"], DENSE * np.mean([seed.curves["macs"] for seed in seeds], axis=0))
    np.testing.assert_allclose(right["λ sep."], DENSE * np.array(record("λ sep.").curves["macs"]))
    assert set(left["original"]) == {DENSE}
    assert legend_texts(figure) == left.keys() | right.keys()


def test_what_dropout_and_pruned_architectures_cost():
    conv1, conv2, hidden, head = 24**2 * 25 * 20, 8**2 * 25 * 20 * 50, 800 * 500, 500 * 10
    dense = conv1 + conv2 + hidden + head
    # An input of the hidden layer is read when its map and the input itself are kept, by the half of it that is kept.
    assert dropout_share(LENET) * dense == pytest.approx(conv1 / 2 + conv2 / 4 + hidden / 8 + head / 2)
    left = 24**2 * 25 * 9 + 8**2 * 25 * 9 * 18 + 65 * 25 + 25 * 10
    assert architecture_share(LENET, "9-18-65-25") * dense == pytest.approx(left)
    params = 219 * 214 + 214 + 214 * 100 + 100 + 100 * 10 + 10
    assert architecture_share(MLP, "219-214-100", "params") * 266_610 == pytest.approx(params)
    with pytest.raises(ArgumentError, match=r"architecture: expected a width for each of .*, got '219-214'"):
        architecture_share(MLP, "219-214")


@pytest.mark.parametrize("few", [1, 2])
def test_a_band_is_the_interval_of_the_mean_and_few_seeds_have_none(few):
    seeds = [record("λ = 0.1/N", seed) for seed in range(3)]
    left, right = figure_3(seeds, seeds[:few]).axes
    assert not right.collections
    (band,) = left.collections
    first = [DENSE * seed.curves["macs"][0] for seed in seeds]
    heights = {y for x, y in band.get_paths()[0].vertices if x == 1.0}
    low, high = np.mean(first) - interval(first), np.mean(first) + interval(first)
    assert sorted(heights) == pytest.approx([low, high])


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((1, 1), "one run each"),
        ((1, 2), "mean of 1 to 2 runs"),
        ((5, 5), "mean of 5 runs, with its 95 % interval"),
        ((1, 3), "mean of 1 to 3 runs, with its 95 % interval from 3 on"),
    ],
)
def test_a_figure_says_of_how_many_trainings_it_is(counts, text):
    assert told([[record("a")] * count for count in counts]) == text


def test_what_is_missing_is_a_gap():
    whole, broken = [0.9, 0.8, 0.7, 0.6, 0.5], [0.9, None, 0.7, None, 0.5]
    figure = figure_4([record("a", 0, macs=whole), record("a", 1, macs=broken)], [record("a")])
    line = next(line for line in figure.axes[0].lines if line.get_label() == "a")
    np.testing.assert_allclose(line.get_ydata(), [900, math.nan, 700, math.nan, 500])
    assert line.get_markevery() == [0, 2, 4]  # a line shows nothing of them


def test_once_gates_are_folded_in_the_network_costs_what_is_left_of_it():
    figure = figure_4([record("a", macs=[0.9, 0.6, None, None], share=0.5)], [record("a")])
    np.testing.assert_allclose(lines(figure.axes[0])["a"], [900, 600, 500, 500])


def test_figure_4_shows_every_row_in_one_look_and_costs_where_there_are_gates():
    rows = [record("plain", macs=[None] * 4), record("λ = 0.001/N"), record("50 % of MACs")]
    figure = figure_4(rows, [record("50 % of MACs", share=0.4), record("dropout", macs=[None] * 4)])
    macs, _, loss, error = (lines(axes) for axes in figure.axes)
    assert macs.keys() == {"without gates, with dropout or not", "λ = 0.001/N", "50 % of MACs"}
    assert lines(figure.axes[1]).keys() == {"without gates, with dropout or not", "50 % of MACs"}
    assert loss.keys() == error.keys() == {row.row for row in rows}
    np.testing.assert_allclose(loss["plain"], rows[0].curves["loss"])
    np.testing.assert_allclose(error["plain"], 100 * np.array(rows[0].curves["error"]))
    looks = [{line.get_color() for line in axes.lines if line.get_label() == "50 % of MACs"} for axes in figure.axes]
    assert looks == [{COLOURS[2]}] * 4
    assert legend_texts(figure) == macs.keys() | loss.keys()


def test_figure_4_leaves_out_trainings_that_are_longer_than_most():
    longer, shorter = record("200 epochs, dense", error=[0.5] * 9), record("λ = 0.001/N", error=[0.5] * 2)
    figure = figure_4([longer, record("50 % of MACs"), shorter, record("plain")], [record("plain")])
    assert lines(figure.axes[3]).keys() == {"50 % of MACs", "λ = 0.001/N", "plain"}
    assert lines(figure_4([longer], [longer]).axes[3]).keys() == {longer.row}


def test_figure_4_gives_rows_that_differ_in_length_one_look():
    figure = figure_4([record("λ, the paper's setting in 60 epochs")], [record("λ, the paper's setting in 30 epochs")])
    assert {line.get_color() for axes in figure.axes for line in axes.lines} == {COLOURS[0], GREY}
    assert legend_texts(figure) == {"λ, the paper's setting, shortened", "without gates, with dropout or not"}


def test_figure_4_shows_the_training_error_of_records_that_have_one():
    old = record("50 % of MACs")
    new = replace(old, row="plain", curves={**old.curves, "training_error": [0.4, 0.3, 0.2, 0.1]})
    begun = replace(old, row="begun", curves={**old.curves, "training_error": [None] * 4})
    without = figure_4([old, begun], [old]).axes[2]  # whose metrics had none
    assert without.get_ylabel() == "training loss"
    assert lines(without).keys() == {"50 % of MACs", "begun"}
    axes = figure_4([old, begun, new, replace(old, row="plain", seed=1)], [old]).axes[2]
    assert axes.get_ylabel() == "training error, %"
    assert lines(axes).keys() == {"plain"}
    np.testing.assert_allclose(lines(axes)["plain"], [40, 30, 20, 10])


def test_an_error_of_zero_keeps_its_axis_linear():
    scales = [figure_4([record("a", error=[0.1, end])], [record("a")]).axes[3].get_yscale() for end in (0.0, 0.01)]
    assert scales == ["linear", "log"]
    scales = [trade_off({"ours": [record("a", final=end)]}).axes[0].get_yscale() for end in (0.0, 0.01)]
    assert scales == ["linear", "log"]


def test_figure_c1_has_density_multiplier_and_error():
    rows = [record(row, expected_l0=[0.8, end], multiplier_l0=[0.5, 0.0]) for row, end in (("with", 0.33), ("no", 0.2))]
    figure = figure_c1(rows)
    density, multiplier, error = (lines(axes) for axes in figure.axes)
    assert density["with"].tolist() == [80, 33]
    assert set(density["target, 33 %"]) == {33}
    assert multiplier["no"].tolist() == [0.5, 0.0]
    np.testing.assert_allclose(error["no"], 100 * np.array(rows[1].curves["error"]))
    assert legend_texts(figure) == {"with", "no", "target, 33 %"}
    with pytest.raises(LzeroError, match="expected one curve that begins with 'expected', got none"):
        figure_c1([record("with")])


def test_figure_c2_sorts_targets_into_its_panels_and_tells_the_worst_density():
    lenet = [target_row(target, "the model", seed, final=0.01 * (seed + 1)) for target in (50, 5) for seed in range(2)]
    layers = {"expected_l0 of conv1": [0.9, 0.07], "expected_l0 of conv2": [0.9, 0.04]}
    mlp = [target_row(5, "each layer", expected_l0=[0.9, 0.05], **layers)]
    top_left, top_right, low_left, low_right = figure_c2(mlp, lenet).axes
    (line,) = top_right.lines
    assert line.get_xdata().tolist() == [5, 50]
    assert line.get_ydata() == pytest.approx([1.5, 1.5])
    assert [text.get_text() for text in top_right.texts] == ["5.2", "50.2"]
    assert [text.get_text() for text in low_left.texts] == ["7.0"]
    assert [axes.texts[0].get_text() for axes in (top_left, low_right)] == ["not run"] * 2
    assert (top_left.get_title(), low_right.get_title()) == (
        "LeNet-5-Caffe, ε for each layer",
        "MLP 784-300-100, ε for the model",
    )


def test_figure_c2_refuses_rows_without_a_target_or_a_density():
    with pytest.raises(LzeroError, match=r"expected rows such as 'ε = 5% of the model'.*got 'plain'"):
        figure_c2([record("plain")], [target_row(5, "the model")])
    with pytest.raises(LzeroError, match="expected curves that begin with 'expected'"):
        figure_c2([record("ε = 5% of the model")], [target_row(5, "the model")])


@pytest.mark.parametrize(("cost", "shares"), [("macs", [10, 50, 50]), ("params", [1, 25, 25])])
def test_a_trade_off_goes_through_means_by_size_with_published_points(cost, shares):
    rows = [record("half", 0, final=0.01), record("half", 1, final=0.03), record("other half", final=0.015)]
    figure = trade_off({"ours": [*rows, record("tenth", share=0.1, final=0.05)]}, {"BC-GNJ": (0.108, 0.018)}, cost)
    ours, _, published = figure.axes[0].lines
    assert ours.get_xdata() == pytest.approx(shares)
    assert ours.get_ydata() == pytest.approx([5, 2, 1.5])
    assert (published.get_xdata().item(), published.get_ydata().item()) == pytest.approx((10.8, 1.8))
    assert figure.axes[0].get_xscale() == "log"
    assert legend_texts(figure) == {"ours", "published:", "BC-GNJ"}


def test_a_trade_off_needs_a_known_cost():
    with pytest.raises(ArgumentError, match='cost: expected "macs" or "params"'):
        trade_off({"ours": [record("half")]}, cost="flops")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figure_3([], [record("λ")]),
        lambda: figure_4([], []),
        lambda: figure_c1([]),
        lambda: figure_c2([target_row(5, "the model")], []),
        lambda: trade_off({"ours": []}),
        lambda: trade_off({}),
    ],
)
def test_nothing_to_draw_says_what_to_do(draw):
    with pytest.raises(LzeroError, match=r"expected records .*, got none; run lzero reproduce first"):
        draw()


def test_rows_that_a_figure_cannot_show_are_named():
    with pytest.raises(LzeroError, match="rows that begin with λ, got ε = 33 %, plain"):
        figure_3([record("ε = 33 %"), record("plain")], [record("λ")])
    with pytest.raises(LzeroError, match="λ: expected records with numbers"):
        figure_3([record("λ", macs=[None, None])], [record("λ")])


def test_dark_pages_get_light_text_and_pictures_their_paper(tmp_path):
    for k, figure in enumerate([*every_figure(), figure_1(), figure_2()]):
        for dark, (ink, _) in ((True, DARK), (False, LIGHT)):
            save(figure, tmp_path / f"{k}{dark}.svg", dark=dark)
            assert {text.get_color() for text in figure.findobj(Text)} == {ink}
            svg = (tmp_path / f"{k}{dark}.svg").read_text()
            assert ink in svg
            assert not {*LIGHT, *DARK, "#000000"} - {ink} & set(re.findall("#[0-9a-f]{6}", svg))
    assert sum(to_rgb(DARK[0])) > 2.5 > 0.5 > sum(to_rgb(LIGHT[0]))


def test_panels_show_the_page_through():
    for figure in [*every_figure(), figure_1(), figure_2()]:
        assert all(axes.get_facecolor()[3] == 0.0 for axes in figure.axes)


def test_all_files_of_a_figure_are_the_same_when_drawn_again(tmp_path):
    names = {"a.svg", "a.png", "a-dark.svg", "a-dark.png"}
    for folder in ("first", "second"):
        written = save_all(figure_4([record("a")], [record("a")]), tmp_path / folder, "a")
        assert {path.name for path in written} == {path.name for path in (tmp_path / folder).iterdir()} == names
    assert all((tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes() for name in names)


def test_only_known_formats_are_written(tmp_path):
    with pytest.raises(ArgumentError, match=r"ends with one of \.svg, \.png, got .*a\.jpeg"):
        save(figure_4([record("a")], [record("a")]), tmp_path / "a.jpeg")


def test_a_training_of_one_epoch_is_drawn(tmp_path):
    save(figure_4([record("a", macs=[0.5])], [record("a")]), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 0
