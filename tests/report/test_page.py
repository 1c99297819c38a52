"""The page of a run: it says what the files say, stands alone, and is safe whatever the files say."""

import json
import math
import re
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
import torch

import lzero
from lzero.report.page import write_page, written
from lzero.report.run import read_run
from lzero.report.summary import budget, fall_of, result
from tests.report.runs import outcome, row, write_run

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "</title></style></pre><script>alert(1)</script>\" onload='alert(2)' {{ 7 * 7 }} &lt; \x00\x1b"


def page(folder, **run):
    return write_page(write_run(folder, **run)).read_text(encoding="utf-8")


def pictures(html):
    """The SVG elements, which must be well-formed XML, too."""
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]  # noqa: S314 (ours)


def words(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.partition("</style>")[2]))


class Balance(HTMLParser):
    """Refuses tags that do not close in order, and collects all of them."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(html):
    """A page that is well-formed, stands alone and runs nothing."""
    balance = Balance()
    balance.feed(html)
    balance.close()
    assert balance.open == []
    assert pictures(html) is not None
    tags = {tag for tag, _ in balance.seen}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"})
    names = {name for _, attributes in balance.seen for name in attributes}
    assert not any(name.startswith("on") or name in ("src", "href", "xlink:href") for name in names)
    style = html[html.index("<style>") : html.index("</style>")]
    assert not re.search(r"https?://|url\(|@import|expression", style)
    for _, attributes in balance.seen:
        numbers = [attributes[name] for name in ("d", "x", "y", "width", "cx", "cy", "points") if name in attributes]
        assert not any(re.search("nan|inf|None", text) for text in numbers)
    return html


def test_it_says_what_the_files_say(tmp_path):
    html = checked(page(tmp_path))
    text = words(html)
    assert "A small conv net on scikit-learn&#39;s digits" in html
    assert "13.1 % of the MACs at 0.67 % test error, 2.5 times as fast." in text
    for number in ("58,474", "14,726", "25.2 %", "1,790,464", "234,551", "4 ms", "1.6 ms", "40 %", "128 examples"):
        assert number in text
    assert "The budget was 20 % of the MACs" in text
    assert "hidden.0 22 100 22 %" in text
    assert "7 units in all" in text
    assert "3 epochs in 12.3 s on 2 CPU cores, torch 2.13.0" in text
    assert f"lzero {lzero.__version__}" in text
    assert "threshold = 0.1" in text


def test_charts_have_a_text_for_those_who_do_not_see_them(tmp_path):
    labels = [svg.get("aria-label") for svg in pictures(page(tmp_path)) if svg.get("role") == "img"]
    assert "Loss over 3 epochs: training from 1.25 to 0.417; test from 1.5 to 0.5" in labels
    assert any(label.startswith("Share of MACs over 3 epochs: expected from 90") for label in labels)
    starts = ["Loss", "Error", "Share of MACs", "Multiplier", "What is left", "Speed of training"]
    assert [label.partition(" over ")[0] for label in labels] == starts


def test_the_target_in_force_is_drawn(tmp_path):
    falling = [row(epoch) for epoch in (1, 2)]
    for each, violation in zip(falling, (0.0, math.log(0.45 / 0.2)), strict=True):
        each["objective"]["groups"]["macs"]["violation"] = violation
    assert "target from 90\xa0% to 20\xa0%" in page(tmp_path, rows=falling)
    penalty = page(tmp_path, rows=falling, changes=["objective.kind=penalty"])
    assert "target from" not in penalty
    assert "The budget" not in penalty


def test_every_epoch_can_be_pointed_at_up_to_a_limit(tmp_path):
    html = checked(page(tmp_path, rows=[row(epoch) for epoch in range(1, 1001)]))
    assert "epoch 1000: " in html
    assert html.count('class="at"') <= 6 * 150
    assert len(html) < 600_000


def test_a_run_that_is_not_finished(tmp_path):
    text = words(checked(page(tmp_path, finished=False)))
    assert "Not finished: 3 of 40 epochs, with 8.33 % test error after the last of them." in text
    assert "compacted" not in text
    assert "no epoch has ended yet" in checked(page(tmp_path, finished=False, rows=[]))


def test_a_line_that_is_being_written_is_left_out(tmp_path):
    write_run(tmp_path, finished=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "loss"')
    assert "3 of 40 epochs" in write_page(tmp_path).read_text()


def test_a_dense_run(tmp_path):
    rows = [{"epoch": 1, "loss": 0.5, "error": 0.1}]
    html = checked(
        page(tmp_path, rows=rows, changes=["gates.units=none", "objective.kind=none"], result=outcome(layers=[]))
    )
    assert "A dense network at 0.67\xa0% test error, trained without gates." in html
    assert "compacted" not in words(html)


def test_the_dense_network_is_drawn_beside_where_there_is_one(tmp_path):
    write_run(tmp_path / "dense", rows=[row(1, error=0.04), row(2, error=0.03)], finished=False)
    text = words(checked(page(tmp_path)))
    assert "test 8.33 % dense 3 % compacted 0.67 %" in text
    assert "dense" not in words(page(tmp_path / "alone", finished=False))


def test_what_is_left_once_gates_are_folded_in_is_what_came_out(tmp_path):
    rows = [row(1), row(2), *({key: value for key, value in row(k).items() if key != "size"} for k in (3, 4))]
    labels = [svg.get("aria-label") for svg in pictures(page(tmp_path, rows=rows))]
    assert (
        "What is left over 4 epochs: parameters from 100\xa0% to 25.2\xa0%; MACs from 100\xa0% to 13.1\xa0%" in labels
    )
    labels = [svg.get("aria-label") for svg in pictures(page(tmp_path / "unfinished", rows=rows, finished=False))]
    assert "What is left over 4 epochs: parameters from 100\xa0% to 50\xa0%; MACs from 100\xa0% to 50\xa0%" in labels


def test_several_groups_have_charts_of_their_own(tmp_path):
    rows = [row(1), row(2)]
    for each in rows:
        group = each["objective"]["groups"]["macs"]
        each["objective"]["groups"] = {f"macs of conv{k}": group for k in range(1, 15)}
    text = words(checked(page(tmp_path, rows=rows)))
    assert "Share of MACs of conv12" in text
    assert "Multiplier of MACs of conv1" in text
    assert "2 more groups of gates are not drawn" in text


def test_errors_of_held_out_examples_are_called_so(tmp_path):
    text = words(checked(page(tmp_path, changes=["data.held_out=0.1"])))
    assert "0.67 % held-out error" in text
    assert "training 20 %, held-out 25 %" in text
    assert "test" not in text


def test_rows_with_less_in_them_do(tmp_path):
    rows = [{key: value for key, value in row(k).items() if key not in ("size", "seconds", "step")} for k in (1, 2)]
    result = {"dense": {"params": 10, "macs": 10}, "compacted": {"params": 5, "macs": 4, "error": 0.1}, "epochs": 2}
    text = words(checked(page(tmp_path, rows=rows, result=result)))
    assert "40 % of the MACs at 10 % test error." in text
    assert "What is left" not in text


def test_kept_pixels_are_drawn(tmp_path):
    html = checked(page(tmp_path, index=torch.tensor([0, 9, 63])))
    assert "reads 3 of 64 pixels (4.69\xa0%)" in html
    assert 'd="M0 0h1v1h-1zM1 1h1v1h-1zM7 7h1v1h-1z"' in html


def test_colour_images_are_drawn_by_channel(tmp_path):
    changes, dense = ["data.name=cifar10"], {"hidden.0.weight": [100, 3072]}
    html = checked(page(tmp_path, changes=changes, dense=dense, index=torch.tensor([0, 1024 + 33, 3071])))
    assert "red, green, blue" in html
    assert all(f'd="M{place}h1v1h-1z"' in html for place in ("0 0", "1 1", "31 31"))


def test_inputs_that_are_no_pixels(tmp_path):
    behind_a_convolution = {"conv.weight": [20, 1, 5, 5], "hidden.0.weight": [500, 64]}
    text = words(page(tmp_path, dense=behind_a_convolution, index=torch.arange(3)))
    assert "The first layer reads every pixel." in text
    assert "hidden.0 reads 3 of its 64 inputs." in text
    own = words(page(tmp_path, dense={"hidden.0.weight": [5, 7]}, index=torch.arange(3)))
    assert "hidden.0 reads 3 of its 7 inputs." in own
    assert "every pixel" not in own
    assert "The first layer reads every pixel." in words(page(tmp_path))


def hostile_rows():
    group = {"expected": math.nan, "realised": math.inf, "violation": -1e99, "multiplier": 10**400}
    whole = row(1, loss=math.nan, error="0.1", removed=HOSTILE, test_loss=-math.inf, images_per_second=[1])
    whole["objective"]["groups"] = {HOSTILE: group, "\ud800": group, "macs": 3}
    odd = [row(2, size={"macs": {"dense": 0, "realised": 1e308}}), {"epoch": 3}, {"epoch": None}, {"epoch": 1e99}, {}]
    return [whole, *odd, row(2, loss=1e-320, removed=1e300), row(-7, objective=[], size="x")]


def test_hostile_files_are_shown_and_do_nothing(tmp_path):
    layers = [{"name": HOSTILE, "before": 3, "after": 9}, {"name": 3}, 7, {"name": "x", "before": 0, "after": 0}]
    result = outcome(machine=HOSTILE, layers=layers, dense=[1], compacted={"error": math.nan, "params": "1"})
    changes = [f"title={json.dumps(HOSTILE)}", f"model.name={json.dumps(HOSTILE)}"]
    html = checked(page(tmp_path, rows=hostile_rows(), changes=changes, result=result))
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 4
    assert "{{ 7 * 7 }}" in html
    assert "Content-Security-Policy" in html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", html)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.toml", None, "config.toml: there is no such file; is this the folder of a run?"),
        ("config.toml", b"title = ", "config.toml: Invalid value"),
        ("config.toml", b"[gates]\nunit = 3", "config.toml: gates.unit: there is no such setting"),
        ("config.toml", b"\xff\xfe", "config.toml: cannot be read"),
        ("metrics.jsonl", None, "metrics.jsonl: there is no such file"),
        ("metrics.jsonl", b'{"epoch": 1}\nnothing\n', "metrics.jsonl, line 2: damaged, not JSON"),
        ("metrics.jsonl", b"[1]\n", "metrics.jsonl, line 1: damaged, expected a JSON object"),
        ("outcome.json", b'{"dense": ', "outcome.json: damaged, not JSON"),
        ("outcome.json", b"[" * 100_000, "outcome.json: damaged, not JSON"),
        ("model.safetensors", None, "model.safetensors: there is no such file, though the run is finished"),
        ("model.safetensors", b"\x08\x00", "model.safetensors: not a whole safetensors file"),
    ],
)
def test_missing_and_damaged_files_are_named(file, content, message, tmp_path):
    write_run(tmp_path)
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(lzero.LzeroError, match=re.escape(message)):
        write_page(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("index", "dense"),
    [
        (torch.tensor([64]), None),
        (torch.tensor([-1]), None),
        (torch.tensor([0.5]), None),
        (torch.tensor([[0]]), None),
        (torch.tensor([0]), {"hidden.0.weight": "many"}),
        (torch.tensor([0]), {"other": [3, 4]}),
    ],
)
def test_chosen_inputs_that_cannot_be_are_refused(index, dense, tmp_path):
    with pytest.raises(lzero.LzeroError, match=r"model\.safetensors: damaged"):
        page(tmp_path, index=index, dense=dense)


def test_a_page_takes_the_place_of_the_one_before(tmp_path):
    page(tmp_path, finished=False)
    assert "Not finished" not in page(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*.html*")) == ["report.html"]


def test_without_jinja2_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    folder = write_run(tmp_path)
    with pytest.raises(lzero.LzeroError, match=r'pip install "lzero\[plots\]"'):
        write_page(folder)
    assert written(lambda: write_page(folder)).startswith("not written: this needs jinja2")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(("error", "told"), [(0.0067, False), (0.095, True)])
def test_what_fitting_the_budget_cost_is_told_where_it_is_much(error, told, tmp_path):
    result = outcome(compacted={"params": 14_726, "macs": 234_551, "error": error, "latency": 0.0016})
    run = read_run(write_run(tmp_path / "run", result=result))
    assert ("took the error from 8.33\N{NO-BREAK SPACE}% to 9.5" in budget(run)) is told


@pytest.mark.parametrize(
    ("violation", "advice"), [(0.1, "had not got there by themselves"), (0.001, "for a last unit")]
)
def test_advice_on_what_fitting_cost_depends_on_whether_gates_were_there(violation, advice, tmp_path):
    result = outcome(compacted={"params": 14_726, "macs": 234_551, "error": 0.2, "latency": 0.0016})
    last = row(3)
    last["objective"]["groups"]["macs"]["violation"] = violation
    run = read_run(write_run(tmp_path / "run", rows=[row(1), row(2), last], result=result))
    assert advice in budget(run)


def test_a_network_that_lost_what_it_had_learnt_is_told(tmp_path):
    rows = [{**row(epoch), "error": error} for epoch, error in enumerate((0.5, 0.07, 0.91), start=1)]
    fallen = read_run(write_run(tmp_path / "fallen", rows=rows, result=outcome()))
    assert "The error rose from 7\N{NO-BREAK SPACE}% after epoch 2 to 91" in fall_of(fallen)
    assert fall_of(fallen) in result(fallen)
    assert fall_of(read_run(write_run(tmp_path / "well", rows=[row(1), row(2)], result=outcome()))) == ""
