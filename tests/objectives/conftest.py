"""Gated models that most tests of objectives use."""

import pytest
import torch

import lzero
from tests import models


def gated(name="MLP", dtype=torch.float32, **options):
    torch.manual_seed(0)
    model, inputs = models.build(name, dtype)
    return lzero.sparsify(model, inputs, **options)


@pytest.fixture
def sparsifier():
    return gated()
