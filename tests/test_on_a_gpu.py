"""Layers for which a GPU has kernels of its own, with gates."""

import pytest
import torch

import lzero
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
