"""The networks have the papers' sizes, train, and compact exactly by plain surgery."""

import ast
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

import lzero
from lzero import zoo
from lzero.errors import ArgumentError
from tests import models

PARAMETERS = {
    "mlp": 266_610,
    "lenet5": 431_080,
    "wrn-28-10": 36_479_194,  # published as 36.5M
    "wrn-16-4": 2_748_890,  # 2.7M
    "resnet20": 272_474,  # 0.27M, and 2,752 in the projections
    "resnet56": 855_770,  # 0.85M, and 2,752 in the projections
    "vgg16": 14_724_042,  # 14.7M
}
IMAGES, SMALL = models.images(3, 16), models.images(3, 8)
NETWORKS = {
    "mlp": (lambda: zoo.MLP(12, (24, 16), 5), lambda: torch.randn(3, 3, 4), (3, 5)),
    "lenet5": (zoo.LeNet5, models.images(1, 28), (2, 10)),
    "lenet5 for small images": (lambda: zoo.LeNet5(channels=2, size=20), models.images(2, 20), (2, 10)),
    "smallconv": (zoo.SmallConv, models.images(1, 8), (2, 10)),
    "smallconv for larger images": (lambda: zoo.SmallConv(size=11, classes=3), models.images(1, 11), (2, 3)),
    "vgg": (lambda: zoo.VGG(11, size=64), models.images(3, 64), (2, 10)),
    "resnet": (lambda: zoo.ResNet(14, classes=7), IMAGES, (2, 7)),
    "wrn": (lambda: zoo.WideResNet(10, 2, dropout=0.3), IMAGES, (2, 10)),
    "wrn of width 1": (lambda: zoo.WideResNet(16, 1, channels=1), models.images(1, 16), (2, 10)),
    "vit": (lambda: zoo.ViT(size=8, width=24, depth=2), SMALL, (2, 10)),
    "gpt": (lambda: zoo.GPT(20, context=8, width=16, depth=2), models.tokens, (2, 6, 20)),
}


def build(name, monkeypatch, make=None):
    """A network with random values wherever a fresh one has zeros or ones, and its inputs."""
    monkeypatch.setitem(models.MODELS, "zoo", (make or NETWORKS[name][0], NETWORKS[name][1]))
    return models.build("zoo")


@pytest.fixture
def _one_thread():
    """Where others compute too, two threads that wait for each other are far slower than one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def tied():
    model = zoo.GPT(20, context=8, width=16, depth=1)
    model.head.weight = model.embed.weight
    return model


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_many_as_published(name):
    with torch.device("meta"):
        model = zoo.make(name)
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_have_their_shape_and_gradients_reach_every_parameter(name):
    make, inputs, shape = NETWORKS[name]
    model = make()
    out = model(inputs())
    assert out.shape == shape
    out.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert any(p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compact_exactly_by_plain_surgery(name, monkeypatch):
    model, x = build(name, monkeypatch)
    models.set_gates(lzero.sparsify(model, x), 0.4)
    small = lzero.compact(model)
    assert isinstance(model, type(small))  # plain surgery: no graph
    assert lzero.verify(model, small, torch.cat([x, x]), tolerance=1e-9) <= 1e-9
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in model.parameters())


def test_every_head_can_go_but_one(monkeypatch):
    model, x = build("gpt", monkeypatch)
    models.set_gates(lzero.sparsify(model, x), 0.0)
    small = lzero.compact(model)
    assert small.layers[0].attention.query.out_features == small.layers[0].attention.head_dim == 4
    assert lzero.verify(model, small, x) <= 1e-9


def test_a_head_tied_to_the_embedding_stays_tied(monkeypatch):
    model, x = build("gpt", monkeypatch, tied)
    models.set_gates(lzero.sparsify(model, x), 0.5)
    small = lzero.compact(model)
    assert small.head.weight is small.embed.weight
    assert lzero.verify(model, small, x, tolerance=1e-9) <= 1e-9


def test_the_next_token_depends_on_none_that_follow():
    model, tokens = zoo.GPT().eval(), torch.randint(256, (1, 64))
    changed = tokens.clone()
    changed[:, 32:] = (changed[:, 32:] + 1) % 256
    same = torch.isclose(model(tokens), model(changed), atol=1e-6).all(-1)
    assert same[0, :32].all()
    assert not same[0, 32:].any()


def test_dropout_of_wide_networks_stands_between_the_convolutions():
    model, x = zoo.make("wrn-10-1", dropout=0.5), IMAGES()
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


@pytest.mark.usefixtures("_one_thread")
def test_small_images_are_learned_in_seconds():
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images))
    x, y = torch.tensor(images / 16).float().view(-1, 1, 8, 8)[order], torch.tensor(labels)[order]
    model = zoo.make("smallconv")
    assert 50_000 < sum(p.numel() for p in model.parameters()) < 100_000
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for batch in torch.cat([torch.randperm(1500) for _ in range(4)]).split(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
    assert (model.eval()(x[1500:]).argmax(1) == y[1500:]).float().mean() > 0.95


@pytest.mark.parametrize("name", zoo.names())
def test_every_name_makes_a_network(name):
    with torch.device("meta"):
        assert isinstance(zoo.make(name), torch.nn.Module)


def test_names_of_wide_networks_carry_their_sizes():
    model = zoo.make("wrn-22-3", classes=4)
    assert len(model.blocks) == 9
    assert (model.head.in_features, model.head.out_features) == (192, 4)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lenet", {}, r"name: expected one of mlp, .*, got 'lenet'; did you mean 'lenet5'\?"),
        ("WRN_28_10", {}, r"did you mean 'wrn-28-10'\?"),
        ("gpt", {"widht": 3}, "options of gpt: expected one of vocabulary, context, width, depth, heads, got 'widht'"),
        ("wrn-28-10", {"depth": 16}, "options of wrn-28-10: expected one of classes, dropout, channels, got 'depth'"),
        ("wrn-27-10", {}, r"depth: expected 6n \+ 4 .*, got 27; such as 28"),
        ("wrn-4-1", {}, r"depth: expected 6n \+ 4"),
        ("wrn-16-0", {}, "width: expected a whole number from 1, got 0"),
        ("wrn-16-4", {"dropout": 1.0}, "dropout: expected a number from 0, below 1, got 1.0"),
        ("wrn-16-4", {"dropout": "0.3"}, "dropout: expected a number"),
        ("mlp", {"widths": 300}, "widths: expected one whole number for each hidden layer, got 300"),
        ("mlp", {"widths": (300, 0)}, "widths: expected a whole number from 1, got 0"),
        ("mlp", {"classes": True}, "classes: expected a whole number from 1, got True"),
        ("lenet5", {"size": 15}, "size: expected a whole number from 16, got 15"),
        ("smallconv", {"size": 3}, "size: expected a whole number from 4, got 3"),
        ("vgg16", {"size": 48}, "size: expected a multiple of 32, for five poolings, got 48"),
        ("vit", {"size": 30}, "size: expected a multiple of 4, the size of a patch, got 30"),
        ("vit", {"width": 64}, "width: expected a multiple of 3, the number of heads, got 64"),
        ("gpt", {"context": 1.5}, "context: expected a whole number from 1, got 1.5"),
    ],
)
def test_what_cannot_be_made_is_refused_with_what_can(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        zoo.make(name, **options)


def test_depths_that_the_papers_do_not_have_are_refused():
    with pytest.raises(ArgumentError, match=r"depth: expected 6n \+ 2 .*, got 18; such as 20"):
        zoo.ResNet(18)
    with pytest.raises(ArgumentError, match="depth: expected 11, 13, 16 or 19, got 12"):
        zoo.VGG(12)


def test_text_longer_than_the_context_is_refused():
    with pytest.raises(ArgumentError, match="tokens: expected at most context=8, got 9"):
        zoo.GPT(20, context=8, width=16, depth=1)(torch.zeros(1, 9, dtype=torch.long))


def test_networks_can_be_copied_out():
    """Of lzero, they import the errors and one another."""
    for file in Path(zoo.__file__).parent.glob("*.py"):
        imports = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        ours = [module for module in imports if module.startswith("lzero")]
        assert all(module == "lzero.errors" or module.startswith("lzero.zoo") for module in ours)
