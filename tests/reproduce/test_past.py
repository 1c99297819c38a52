"""Our networks at the size, and at the error, of published ones: read from records, never from beyond them."""

from dataclasses import replace

from lzero.report.paper_networks import LENET
from lzero.reproduce import past
from lzero.reproduce.records import Record
from lzero.reproduce.rows import LOUIZOS, Experiment, Published, Row

ROWS = (
    Row("λ, as listed", "", (), Published(LOUIZOS, "20-25-45-462", 0.9, 0.7)),
    Row("λ, another way", "", (), Published(LOUIZOS, "20-25-45-462", 0.9, 0.7)),
    Row("ours, small", ""),
    Row("ours, large", ""),
)
MNIST = Experiment("a", "A", ROWS, 1, (), LENET)
CIFAR = Experiment("b", "B", (Row("plain, here", "", (), Published(LOUIZOS, error=4.0)), *ROWS[2:]), 1, ())


def record(row, error, share=1.0, seed=0):
    dense = 431_080, 2_293_000
    size = tuple(round(share * count) for count in dense)
    return Record(row, seed, "", error, error, *size, *dense, 1.0, 1.0, {}, {}, 1, 1.0, "two cores", {})


def test_each_published_network_has_one_line_with_its_own_size():
    (line,) = past.lines(MNIST, [record("ours, small", 0.01, 0.01), record("ours, large", 0.006, 0.05)])
    assert line[:3] == (f"LeNet-5-Caffe: 20-25-45-462 ({LOUIZOS})", "38,927 parameters", "0.7 best / 0.9")


def test_the_best_within_the_size_and_the_smallest_within_the_error():
    found = [
        record("ours, small", 0.010, 0.01),
        record("ours, large", 0.006, 0.04),
        record("λ, as listed", 0.001, 0.01),
    ]
    _, _, _, no_larger, no_worse = past.lines(MNIST, found)[0]
    assert no_larger == "0.60 (one run) at 17,243"
    # A quarter of the way from 1.0 to 0.6, and from log 1 % to log 4 %.
    assert no_worse == f"{4_311 * (17_243 / 4_311) ** 0.25:,.0f} (16 %) (one run)"


def test_seeds_are_averaged_before_anything_is_read():
    found = [record("ours, small", error, 0.01, seed) for seed, error in enumerate((0.002, 0.014))]
    assert past.lines(MNIST, found)[0][3:] == ("0.80 (2 runs) at 4,311", "at most 4,311 (11 %)")


def test_what_was_not_reached_is_said():
    assert past.lines(MNIST, [record("ours, small", 0.02, 0.01)])[0][3:] == ("2.00 (one run) at 4,311", "none")
    assert past.lines(MNIST, [record("ours, large", 0.005, 0.5)])[0][3] == "none"


def test_networks_published_without_widths_count_as_whole():
    (line,) = past.lines(CIFAR, [record("plain, here", 0.03), record("ours, large", 0.035, 0.5)])
    assert line == (
        f"B: plain ({LOUIZOS})",
        "2,293,000 MACs",
        "4.0",
        "3.50 (one run) at 1,146,500",
        "at most 1,146,500 (50 %) (one run)",
    )


def test_without_networks_of_ours_there_is_nothing_to_compare():
    assert past.lines(MNIST, [record("λ, as listed", 0.01)]) == []


def test_networks_that_papers_compare_with_are_compared_with_here_too():
    other = Published("BC-GHS, Louizos et al. 2017", "5-10-76-16", 1.0)
    *_, line = past.lines(replace(MNIST, compared=(other,)), [record("ours, small", 0.011, 0.006)])
    assert line == (
        "LeNet-5-Caffe: 5-10-76-16 (BC-GHS, Louizos et al. 2017)",
        "2,792 parameters",
        "1.0",
        "1.10 (one run) at 2,586",
        "none",
    )
