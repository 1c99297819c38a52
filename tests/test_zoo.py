"""The networks have the papers' sizes, train, and compact exactly by plain surgery."""

import ast
from itertools import pairwise
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
    "lenet5, narrow, with dropout": (
        lambda: zoo.LeNet5(widths=[7, 17, 40], dropout=0.5),
        models.images(1, 28),
        (2, 10),
    ),
    "lenet5 for small images": (lambda: zoo.LeNet5(channels=2, size=20), models.images(2, 20), (2, 10)),
    "smallconv": (zoo.SmallConv, models.images(1, 8), (2, 10)),
    "smallconv for larger images": (lambda: zoo.SmallConv(size=11, classes=3), models.images(1, 11), (2, 3)),
    "vgg": (lambda: zoo.VGG(11, size=64), models.images(3, 64), (2, 10)),
    "resnet": (lambda: zoo.ResNet(14, classes=7), IMAGES, (2, 7)),
    "wrn": (lambda: zoo.WideResNet(10, 2, dropout=0.3), IMAGES, (2, 10)),
    "wrn, narrow inside": (lambda: zoo.WideResNet(10, 2, hidden=0.6), IMAGES, (2, 10)),
    "wrn of width 1": (lambda: zoo.WideResNet(16, 1, channels=1), models.images(1, 16), (2, 10)),
    "vit": (lambda: zoo.ViT(size=8, width=24, depth=2), SMALL, (2, 10)),
    "gpt": (lambda: zoo.GPT(20, context=8, width=16, depth=2), models.tokens, (2, 6, 20)),
}


def build(name, monkeypatch, make=None):
    """A network with random values wherever a fresh one has zeros or ones, and its inputs."""
    monkeypatch.setitem(models.MODELS, "zoo", (make or NETWORKS[name][0], NETWORKS[name][1]))
    return models.build("zoo")


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


DROPPING = {"wrn-10-1": IMAGES, "lenet5": models.images(1, 28), "mlp": models.images(1, 28)}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_is_drawn_in_training_alone(name):
    model, x = zoo.make(name, dropout=0.5), DROPPING[name]()
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize("name", ["lenet5", "mlp"])
def test_without_dropout_nothing_is_drawn(name):
    model, x = zoo.make(name), torch.rand(2, 1, 28, 28)
    before = torch.get_rng_state()
    model(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_maps_are_dropped_as_a_whole():
    model, seen = zoo.LeNet5(dropout=0.5), []
    model.conv2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model.conv1.bias.fill_(10.0)  # so that no map is zero by itself
        model(torch.rand(4, 1, 28, 28))
    zeros = (seen[0] == 0).flatten(2).float().mean(2)
    assert set(zeros.flatten().tolist()) == {0.0, 1.0}


def test_hidden_widths_of_wide_networks_are_scaled_to_multiples():
    assert [block.conv1.out_channels for block in zoo.make("wrn-10-4", hidden=0.4).blocks] == [32, 48, 96]
    assert [block.conv1.out_channels for block in zoo.make("wrn-10-1", hidden=0.4).blocks] == [6, 13, 32]
    assert [block.conv2.out_channels for block in zoo.make("wrn-10-4", hidden=0.4).blocks] == [64, 128, 256]


def lenet_macs(factor):
    first, second, hidden = zoo.scaled((20, 50, 500), factor)
    return 24**2 * 25 * first + 8**2 * 25 * first * second + 16 * second * hidden + 10 * hidden


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_a_narrower_network_costs_at_most_its_share_and_the_next_one_more(share):
    factor = zoo.factor_for(share, lenet_macs)
    assert lenet_macs(factor) <= share * lenet_macs(1.0)
    assert share == 1 or lenet_macs(factor + 0.001) > share * lenet_macs(1.0)
    model = zoo.LeNet5(widths=zoo.scaled((20, 50, 500), factor))
    assert lzero.measure(model, torch.zeros(1, 1, 28, 28)).macs.dense == lenet_macs(factor)


def test_widths_are_whole_grow_with_the_factor_and_none_is_lost():
    every = [zoo.scaled((3, 20, 500), k / 50, multiple=4) for k in range(1, 60)]
    assert all(min(widths) >= 1 and all(w <= 4 or w % 4 == 0 for w in widths) for widths in every)
    assert all(all(a <= b for a, b in zip(one, next_, strict=True)) for one, next_ in pairwise(every))


def test_shares_that_no_width_reaches_are_refused():
    with pytest.raises(ArgumentError, match=r"share: expected at least 0\..*%, the narrowest, got 0\.001"):
        zoo.factor_for(0.001, lenet_macs)
    for share in (0, 1.5, True, "half"):
        with pytest.raises(ArgumentError, match="share: expected a number above 0, up to 1"):
            zoo.factor_for(share, lenet_macs)


@pytest.mark.usefixtures("one_thread")
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
        ("lenet", {}, r"name: expected one of mlp, .*, got 'lenet'; did you mean lenet5\?"),
        ("WRN_28_10", {}, r"did you mean wrn-28-10\?"),
        ("gpt", {"widht": 3}, "options of gpt: expected one of vocabulary, context, width, depth, heads, got 'widht'"),
        ("wrn-28-10", {"depth": 16}, "expected one of classes, dropout, channels, hidden, got 'depth'"),
        ("wrn-27-10", {}, r"depth: expected 6n \+ 4 .*, got 27; such as 28"),
        ("wrn-4-1", {}, r"depth: expected 6n \+ 4"),
        ("wrn-16-0", {}, "width: expected a whole number from 1, got 0"),
        ("wrn-16-4", {"dropout": 1.0}, "dropout: expected a number from 0, below 1, got 1.0"),
        ("wrn-16-4", {"dropout": "0.3"}, "dropout: expected a number"),
        ("wrn-16-4", {"hidden": 0}, "hidden: expected a number above 0, got 0"),
        ("lenet5", {"dropout": True}, "dropout: expected a number from 0, below 1, got True"),
        (
            "lenet5",
            {"widths": [20, 50]},
            r"widths: expected one whole number for each of 3 hidden layers, got \[20, 50\]",
        ),
        ("lenet5", {"widths": [20, 50, 0.5]}, "widths: expected a whole number from 1, got 0.5"),
        ("mlp", {"dropout": -0.1}, "dropout: expected a number from 0, below 1, got -0.1"),
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
    """Of lzero, they import the errors, the checks of arguments and one another."""
    for file in Path(zoo.__file__).parent.glob("*.py"):
        imports = [node.module for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
        ours = [module for module in imports if module.startswith("lzero")]
        assert all(module in ("lzero.errors", "lzero.arguments") or module.startswith("lzero.zoo") for module in ours)


def test_images_of_any_number_go_through_an_exported_transformer(tmp_path):
    model = zoo.make("vit", size=8, patch=4, width=16, depth=1, heads=2, channels=1)
    lzero.export(model, tmp_path / "vit.pt2", torch.randn(2, 1, 8, 8))
    run = torch.export.load(tmp_path / "vit.pt2").module()
    assert run(torch.randn(5, 1, 8, 8)).shape == (5, 10)
