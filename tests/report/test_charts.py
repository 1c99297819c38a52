"""Where the lines of charts go."""

import pytest

from lzero.report.axes import BOTTOM, LEFT, MARGIN, RIGHT, TOP, epoch_axis, value_axis
from lzero.report.charts import draw
from lzero.report.columns import Series, Time


def path(*values):
    chart = draw("", Time(range(1, len(values) + 1), {}), [Series("", "first", values)], may_log=False)
    return chart.lines[0].path


def test_a_line_goes_from_edge_to_edge_and_from_zero():
    left, right = LEFT + MARGIN, RIGHT - MARGIN
    assert path(1.0, 0.0) == f"M{left}.0 {TOP}.0L{right}.0 {BOTTOM}.0"


def test_a_line_breaks_where_there_is_no_number():
    assert path(1.0, 1.0, None, 1.0, None, 1.0, 1.0).count("M") == 3
    assert path(1.0, None, 1.0).count("h4") == 2


def test_nothing_is_drawn_of_no_numbers():
    assert draw("", Time([1], {}), [Series("", "first", [None])]) is None


def test_zero_lies_at_the_start_of_a_logarithmic_axis():
    axis = value_axis([0.0, 0.01, 1.0])
    assert axis.log
    assert axis.ticks[0] == 0.0
    assert axis.place(0.0) == BOTTOM > axis.place(0.01) > axis.place(1.0)


@pytest.mark.parametrize("values", [[0.0], [-3.0, 5.0], [1e99, -1e99], [7.0], [1e-99], [1e-99, 1e99], [0.0, 1e-90, 3]])
def test_numbers_and_ticks_lie_inside(values):
    axis = value_axis(values)
    assert 2 <= len(axis.ticks) <= 11
    assert all(TOP <= axis.place(number) <= BOTTOM for number in (*values, *axis.ticks))


@pytest.mark.parametrize("epochs", [[1], [1, 2], [0, 199], [0.1, 0.2], [1e99], [-7, 1e99]])
def test_epochs_lie_inside(epochs):
    axis = epoch_axis(epochs)
    assert 1 <= len(axis.ticks) <= 7
    assert all(LEFT <= axis.place(number) <= RIGHT for number in epochs)


def test_columns_cover_the_chart_and_say_what_was_removed():
    chart = draw("", Time(range(1, 402), {401: 5}), [Series("loss", "first", [0.5] * 401)])
    assert len(chart.columns) <= 150
    assert sum(column.width for column in chart.columns) == pytest.approx(RIGHT - LEFT, abs=1)
    assert (chart.columns[-1].above, chart.columns[-1].beside) == ("epoch 401: loss 0.5", "5 units removed")


def test_a_share_just_above_one_is_one():
    assert value_axis([1.0000001, 0.2]).high == 1.0
