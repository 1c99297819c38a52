"""Layers for which a GPU has kernels of its own, with gates; and times taken there."""

import json

import pytest
import torch
from typer.testing import CliRunner

import lzero
from lzero import recipes
from lzero.cli import app
from tests.models import build, set_gates

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("name", ["recurrent", "Transformer", "TransformerEncoderLayer"])
def test_layers_with_kernels_of_their_own(name):
    """cuDNN and fused attention make of gated weights what the CPU makes of them; so does what is left after a cut."""
    torch.manual_seed(0)
    model, x = build(name)
    sparsifier = lzero.sparsify(model, x)
    set_gates(sparsifier, 0.5)
    with torch.no_grad():
        expected = model.eval()(x)
    model, x = model.cuda(), x.cuda()
    with torch.no_grad():
        torch.testing.assert_close(model(x).cpu(), expected)
    assert lzero.verify(model, lzero.compact(model), x) <= 1e-9
    optimizer = torch.optim.Adam(sparsifier.param_groups(lr=1e-3))
    for _ in range(3):
        model.train()(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.shrink(optimizer) > 0
    model(x).square().mean().backward()
    assert lzero.verify(model, lzero.compact(model), x) <= 1e-9


def test_a_bench_runs_on_the_gpu(tmp_path, monkeypatch):
    """Networks are made on the CPU and timed where they will run, in the recipe's precision and layout."""
    monkeypatch.chdir(tmp_path)
    halves = ["training.precision=bf16-mixed", "training.channels_last=true"]
    (tmp_path / "halves.toml").write_text(recipes.as_toml(recipes.load("digits", halves)))
    arguments = ["halves.toml", "--batch", "1", "--batch", "64", "--round-to", "16", "--repeats", "3", "--json"]
    result = CliRunner().invoke(app, ["bench", *arguments])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["machine"].startswith("1×")  # a GPU, not cores
    assert [each["name"] for each in found["networks"]] == ["dense", "50% of MACs", "multiples of 16"]
    assert all(each["step"]["64"] > 0 for each in found["networks"])
