r"""Which architectures lzero cuts: small models by transformers, of which half of the units go.

    python benchmarks/architectures.py                # all of them, one line each
    python benchmarks/architectures.py swin llama t5  # some

Weights are random and in double precision, half of the gates are closed, the others anywhere up to 1. The outputs of
what is left are compared with the gated model's. "As it is" means that the model's own class runs with the new sizes;
where its code insists on the old ones, what is left is a graph.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

import lzero

TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 60}
IMAGES = {name: size for name, size in TEXT.items() if name != "vocab_size"} | {"image_size": 32, "patch_size": 8}
GROUPED = TEXT | {"num_key_value_heads": 2}
STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
SUPER = {"image_size": 16, "embed_dim": 16, "depths": [2], "num_heads": [2], "window_size": 4}
SOUND = {"conv_dim": [16] * 3, "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 3], "num_feat_extract_layers": 3}


def images(size: int = 64) -> Tensor:
    """Two images."""
    return torch.randn(2, 3, size, size)


def tokens() -> Tensor:
    """Two texts."""
    return torch.randint(5, 50, (2, 8))


@dataclass(frozen=True)
class Architecture:
    """A small model of a family: the class that transformers has for a task, and the settings of its configuration."""

    family: str
    task: str
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[], Tensor] = images

    def make(self) -> nn.Module:
        """The model with random weights, in evaluation."""
        config = getattr(transformers, f"{self.family}Config")(**self.settings)
        config.use_cache = False
        model: nn.Module = getattr(transformers, self.family + self.task)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:  # scales of 1e-6 and biases of 0 would hide what is wrong behind them
                    parameter.normal_(0.5, 0.5)
        return Logits(model.eval().double())


class Logits(nn.Module):
    """A model that returns the first of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The first output of the model."""
        first: Tensor = self.model(**{str(self.model.main_input_name): x})[0]
        return first


def vision(family: str, settings: dict[str, Any], inputs: Callable[[], Tensor] = images) -> Architecture:
    """A model for images."""
    return Architecture(family, "ForImageClassification", settings, inputs)


def causal(family: str, settings: dict[str, Any]) -> Architecture:
    """A model that continues texts."""
    return Architecture(family, "ForCausalLM", settings, tokens)


def sequence(family: str, settings: dict[str, Any]) -> Architecture:
    """A model for texts."""
    return Architecture(family, "ForSequenceClassification", settings, tokens)


def small_images() -> Tensor:
    """Two images of a quarter of the size."""
    return images(32)


ALL = {
    "resnet": vision("ResNet", {"embedding_size": 8, **STAGES}),
    "regnet": vision("RegNet", {"embedding_size": 8, "groups_width": 4, **STAGES}),
    "mobilenet v1": vision("MobileNetV1", {"depth_multiplier": 0.25}),
    "mobilenet v2": vision("MobileNetV2", {"depth_multiplier": 0.35}),
    "convnext": vision("ConvNext", STAGES),
    "poolformer": vision("PoolFormer", STAGES),
    "bit, weights standardised": vision("Bit", {"embedding_size": 8, "num_groups": 4, **STAGES}),
    "vit": vision("ViT", IMAGES, small_images),
    "deit": vision("DeiT", IMAGES, small_images),
    "beit": vision("Beit", IMAGES, small_images),
    "dinov2": vision("Dinov2", {**IMAGES, "mlp_ratio": 2}, small_images),
    "swin": vision("Swin", WINDOWS, small_images),
    "swin v2": vision("Swinv2", WINDOWS, small_images),
    "pvt": vision("Pvt", {**STAGES, "image_size": 64, "num_attention_heads": [1, 2, 3, 4]}),
    "mobilevit": vision("MobileViT", {"hidden_sizes": [24, 32, 40], "neck_hidden_sizes": [8, 16, 16, 24, 24, 32, 64]}),
    "levit": vision("Levit", {"image_size": 64, "hidden_sizes": [16, 32, 48], "num_attention_heads": [2, 4, 6]}),
    "segformer": Architecture("Segformer", "ForSemanticSegmentation", {**STAGES, "decoder_hidden_size": 16}),
    "swin2sr, pixel shuffle": Architecture("Swin2SR", "ForImageSuperResolution", SUPER, lambda: images(16)),
    "clip, images": Architecture("CLIPVision", "Model", IMAGES, small_images),
    "bert": sequence("Bert", TEXT),
    "distilbert": sequence("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": 60}),
    "roberta": sequence("Roberta", TEXT),
    "albert": sequence("Albert", {**TEXT, "embedding_size": 16}),
    "electra": sequence("Electra", {**TEXT, "embedding_size": 16}),
    "deberta v2": sequence("DebertaV2", TEXT),
    "mpnet": sequence("MPNet", TEXT),
    "t5, encoder": Architecture("T5", "EncoderModel", {"d_model": 32, "d_kv": 8, "d_ff": 64, "vocab_size": 60}, tokens),
    "gpt-2": Architecture("GPT2", "LMHeadModel", {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60}, tokens),
    "gpt-neox": causal("GPTNeoX", TEXT),
    "opt": causal("OPT", {**TEXT, "ffn_dim": 64, "word_embed_proj_dim": 32}),
    "bloom": causal("Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 60}),
    "falcon": causal("Falcon", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 60}),
    "llama": causal("Llama", GROUPED),
    "mistral": causal("Mistral", GROUPED),
    "qwen2": causal("Qwen2", GROUPED),
    "gemma": causal("Gemma", {**GROUPED, "head_dim": 8}),
    "phi": causal("Phi", TEXT),
    "mamba": causal("Mamba", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 60, "state_size": 4}),
    "wav2vec 2": Architecture("Wav2Vec2", "ForSequenceClassification", {**TEXT, **SOUND}, lambda: torch.randn(2, 800)),
    "patchtst": Architecture(
        "PatchTST",
        "ForPrediction",
        {"num_input_channels": 2, "context_length": 32, "patch_length": 8, "patch_stride": 8, "d_model": 16},
        lambda: torch.randn(2, 32, 2),
    ),
}  # fmt: skip


def half_closed(sparsifier: lzero.Sparsifier) -> None:
    """A half of the gates closed by chance, the others anywhere above."""
    with torch.no_grad():
        opened = torch.empty_like(sparsifier.log_alpha).uniform_(-2, 4)
        sparsifier.log_alpha.copy_(torch.where(torch.rand_like(opened) < 0.5, opened, -5.0))


def row(name: str) -> str:
    """What became of one architecture."""
    torch.manual_seed(0)
    model, x = ALL[name].make(), ALL[name].inputs()
    x = x.double() if x.is_floating_point() else x
    dense = sum(parameter.numel() for parameter in model.parameters())
    try:
        sparsifier = lzero.sparsify(model, x)
    except lzero.LzeroError as error:
        return f"| {name} | {str(error).splitlines()[0]} | | | |"
    half_closed(sparsifier)
    try:
        small, kind = lzero.compact(model), "as it is"
    except lzero.LzeroError:
        small, kind = lzero.compact(model, fallback="graph"), "as a graph"
    units = sum(count for _, count, _ in sparsifier.plan().removable)
    left = sum(parameter.numel() for parameter in small.parameters()) / dense
    return f"| {name} | {units:,} | {left:.0%} | {kind} | {lzero.verify(model, small, x):.1g} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none is given; any of: {', '.join(ALL)}")
    names = parser.parse_args().names or list(ALL)
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"expected names from the list, got {', '.join(unknown)}")
    warnings.simplefilter("ignore")
    logging.disable()
    print(f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}\n")
    print("| | units that can go | parameters left | what is left runs | relative difference |")
    print("| --- | --- | --- | --- | --- |")
    for name in names:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
