"""Small models of every family, with smooth activations that are not 0 at 0, so that no error hides in a dead unit."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


class Sum(nn.Module):
    """Two branches, added."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x):
        return self.one(x) + self.other(x)


class Joined(nn.Module):
    """Two branches, concatenated."""

    def __init__(self, one, other):
        super().__init__()
        self.one, self.other = one, other

    def forward(self, x):
        return torch.cat([self.one(x), self.other(x)], dim=1)


def mlp():
    return nn.Sequential(nn.Linear(12, 24), nn.Softplus(), nn.Linear(24, 16), nn.Sigmoid(), nn.Linear(16, 5))


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.Softplus(), nn.MaxPool2d(2), nn.Conv2d(6, 10, 5), nn.Softplus(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(160, 30), nn.Softplus(), nn.Linear(30, 10),
    )  # fmt: skip


def conv_bn(i, o, kernel=3, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o))


def head(channels, classes=7):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def vgg():
    return nn.Sequential(
        conv_bn(3, 8), nn.Softplus(), conv_bn(8, 12), nn.Softplus(), nn.MaxPool2d(2), conv_bn(12, 16), nn.Softplus(),
        nn.Flatten(), nn.Dropout(), nn.Linear(16 * 16, 20), nn.BatchNorm1d(20), nn.Softplus(), nn.Linear(20, 7),
    )  # fmt: skip


def basic_block(i, o, stride=1):
    body = nn.Sequential(conv_bn(i, o, 3, stride), nn.Softplus(), conv_bn(o, o))
    shortcut = nn.Identity() if i == o and stride == 1 else conv_bn(i, o, 1, stride)
    return nn.Sequential(Sum(body, shortcut), nn.Softplus())


def resnet18():
    return nn.Sequential(
        conv_bn(3, 8), nn.Softplus(), basic_block(8, 8), basic_block(8, 12, 2), basic_block(12, 12), head(12)
    )


def bottleneck(i, o, groups=1, stride=1):
    width = o // 2
    body = nn.Sequential(
        conv_bn(i, width, 1),
        nn.Softplus(),
        conv_bn(width, width, 3, stride, groups),
        nn.Softplus(),
        conv_bn(width, o, 1),
    )
    return nn.Sequential(Sum(body, nn.Identity() if i == o else conv_bn(i, o, 1, stride)), nn.Softplus())


def resnet50():
    return nn.Sequential(conv_bn(3, 8), nn.Softplus(), bottleneck(8, 16), bottleneck(16, 16), head(16))


def resnext():
    return nn.Sequential(
        conv_bn(3, 8), nn.Softplus(), bottleneck(8, 32, groups=4), bottleneck(32, 32, groups=4), head(32)
    )


def pre_activation(i, o, stride=1):
    body = nn.Sequential(
        nn.BatchNorm2d(i), nn.Softplus(), nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.Softplus(),
        nn.Dropout(0.3), nn.Conv2d(o, o, 3, 1, 1, bias=False),
    )  # fmt: skip
    return Sum(body, nn.Identity() if i == o else nn.Conv2d(i, o, 1, stride, bias=False))


def wrn():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), pre_activation(6, 12), pre_activation(12, 12), nn.BatchNorm2d(12), head(12)
    )


def densenet():
    def layer(i, growth):
        return Joined(
            nn.Identity(), nn.Sequential(nn.BatchNorm2d(i), nn.Softplus(), nn.Conv2d(i, growth, 3, padding=1))
        )

    return nn.Sequential(nn.Conv2d(3, 6, 3), layer(6, 4), layer(10, 4), nn.Conv2d(14, 8, 1), nn.Softplus(), head(8))


def mobilenet():
    def inverted(i, o, expand=3):
        w = i * expand
        body = nn.Sequential(
            conv_bn(i, w, 1), nn.Hardswish(), conv_bn(w, w, 3, groups=w), nn.Sigmoid(), conv_bn(w, o, 1)
        )
        return Sum(body, nn.Identity()) if i == o else body

    return nn.Sequential(conv_bn(3, 6), nn.Softplus(), inverted(6, 8), inverted(8, 8), nn.Softplus(), head(8))


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 2, 1), nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.softplus(self.down(x.mean((2, 3), keepdim=True)))))


def squeeze_excite():
    return nn.Sequential(conv_bn(3, 8), nn.Softplus(), SqueezeExcite(8), conv_bn(8, 10), nn.Softplus(), head(10))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = conv_bn(3, 6), conv_bn(6, 12)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2)
        self.norm = nn.GroupNorm(3, 12)
        self.out = nn.Conv2d(12, 2, 1)

    def forward(self, x):
        high = F.softplus(self.down1(x))
        low = F.softplus(self.down2(F.avg_pool2d(high, 2)))
        smooth = F.interpolate(self.up(low), scale_factor=1.0, mode="nearest")
        return self.out(F.softplus(self.norm(torch.cat([high, F.pad(smooth, (0, 0, 0, 0))], 1))))


def conv1d():
    return nn.Sequential(
        nn.Conv1d(2, 8, 5, dilation=2), nn.InstanceNorm1d(8, affine=True), nn.Softplus(), nn.Conv1d(8, 6, 3, stride=2),
        nn.PReLU(6), nn.AvgPool1d(2), nn.ConvTranspose1d(6, 4, 3), nn.Softplus(), nn.Flatten(), nn.LazyLinear(3),
    )  # fmt: skip


def conv3d():
    return nn.Sequential(
        nn.Conv3d(1, 6, 3),
        nn.BatchNorm3d(6),
        nn.Softplus(),
        nn.Conv3d(6, 4, 2),
        nn.Softplus(),
        nn.Flatten(),
        nn.LazyLinear(3),
    )


class Recurrent(nn.Module):
    """Torch's recurrent layers one after another: both ways, in two layers, by a cell, from states given and not."""

    def __init__(self):
        super().__init__()
        self.embed, self.states = nn.Embedding(20, 6), 7
        self.forth_and_back = nn.LSTM(6, 8, bidirectional=True, batch_first=True)
        self.deep, self.plain = nn.GRU(16, self.states, 2, batch_first=True), nn.RNN(7, 6)
        self.cell, self.read = nn.LSTMCell(6, 5), nn.Linear(12, 20)

    def forward(self, tokens):
        x, _ = self.forth_and_back(self.embed(tokens))
        start = torch.zeros(2, tokens.shape[0], self.states, dtype=x.dtype, device=x.device)
        x, last = self.deep(x, start)
        state = None
        for step in self.plain(x.transpose(0, 1))[0]:
            state = self.cell(step, state)
        return self.read(torch.cat([state[0], last[-1]], dim=-1))


class Attention(nn.Module):
    """Fused or separate q, k, v, sized by attributes, as many models are."""

    def __init__(self, width, heads, fused):
        super().__init__()
        self.depth, self.fused = width // heads, fused
        self.qkv = nn.Linear(width, 3 * width) if fused else nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1) if self.fused else (layer(x) for layer in self.qkv)
        q, k, v = (t.unflatten(-1, (-1, self.depth)).transpose(1, 2) for t in (q, k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class CountingAttention(Attention):
    """The same, sized by what comes in: no attribute holds the depth of a head."""

    def __init__(self, width, heads):
        super().__init__(width, heads, fused=True)
        self.heads, self.dropout = heads, nn.Dropout(0.1)

    def forward(self, x):
        batch, length, width = x.shape
        by_head = batch, length, self.heads, width // self.heads
        q, k, v = (t.reshape(by_head).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.dropout(self.out(attended.transpose(1, 2).reshape(batch, length, width)))


class GPTBlock(nn.Module):
    def __init__(self, attention, width=16, heads=4):
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.read = nn.Linear(width, 20)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.attention(self.norm1(x))
        return self.read(x + self.mlp(self.norm2(x)))


def encoder_layer():
    return nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation=F.softplus, batch_first=True)


class Translator(nn.Module):
    """Torch's own transformer: two kinds of attention, sentences filled up with zeros, no word read before its time."""

    def __init__(self):
        super().__init__()
        self.embed, self.read = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.transformer = nn.Transformer(16, 4, 2, 1, 24, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, sentences):
        source, target = sentences.split([6, 5], dim=1)
        kind = {"dtype": self.embed.weight.dtype, "device": target.device}
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1], **kind)
        masks = {"src_key_padding_mask": source == 0, "memory_key_padding_mask": source == 0, "tgt_mask": causal}
        return self.read(self.transformer(self.embed(source), self.embed(target), tgt_is_causal=True, **masks))


def sentences():
    both = torch.randint(1, 20, (2, 11))
    both[1, 4:6] = 0  # the end of the first
    return both


HEADS = {"num_attention_heads": 4, "intermediate_size": 24}


def _hugging_face(model, config, **settings):
    transformers = __import__("transformers")
    return getattr(transformers, model)(getattr(transformers, config)(**settings))


def gpt2():
    sizes = {"vocab_size": 20, "n_embd": 16, "n_layer": 1, "n_head": 4, "n_positions": 8}
    return _hugging_face("GPT2LMHeadModel", "GPT2Config", use_cache=False, bos_token_id=0, eos_token_id=0, **sizes)


def bert():
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 8}
    return _hugging_face("BertModel", "BertConfig", **HEADS, **sizes)


def llama():
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_key_value_heads": 2, **HEADS}
    return _hugging_face("LlamaForCausalLM", "LlamaConfig", use_cache=False, bos_token_id=0, eos_token_id=0, **sizes)


def t5():
    sizes = {"vocab_size": 20, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 1, "num_heads": 4}
    return _hugging_face("T5EncoderModel", "T5Config", dropout_rate=0.0, **sizes)


def vit():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "image_size": 8, "patch_size": 4}
    return _hugging_face("ViTModel", "ViTConfig", **HEADS, **sizes)


def swin():
    """Windows that are rolled, biases that are looked up."""
    sizes = {"image_size": 8, "patch_size": 1, "embed_dim": 8, "depths": [2], "num_heads": [2], "window_size": 4}
    return _hugging_face("SwinForImageClassification", "SwinConfig", drop_path_rate=0.0, **sizes)


def segformer():
    """Attention of one head and of two; hooks that are there from the first forward on."""
    sizes = {"num_encoder_blocks": 2, "hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2]}
    sizes |= {"sr_ratios": [2, 1], "patch_sizes": [3, 3], "strides": [2, 2], "mlp_ratios": [2, 2]}
    numbers = {"decoder_hidden_size": 8, "drop_path_rate": 0.0, "initializer_range": 0.5}
    model = _hugging_face("SegformerForSemanticSegmentation", "SegformerConfig", **sizes, **numbers)
    model.decode_head.activation = nn.Softplus()  # not a unit that ReLU keeps at zero
    return model


class Unrolled(nn.Module):
    """A recurrence by hand, whose state begins as zeros, or as it is told to."""

    def __init__(self, state=None):
        super().__init__()
        self.width, self.state = 8, state or Unrolled.zeros
        self.read, self.mix, self.out = nn.Linear(3, 8), nn.Parameter(torch.rand(8)), nn.Linear(8, 2)

    def zeros(self, x):
        return torch.zeros(x.shape[0], self.width, dtype=x.dtype)

    def forward(self, x):
        h = self.state(self, x)
        for k in range(x.shape[1]):
            h = torch.tanh(self.read(x[:, k]) + self.mix * h)
        return self.out(h)


class Checking(nn.Module):
    """Asserts the width of what it is given, as the blocks of diffusion models do; widths in and out are the same."""

    def __init__(self, channels):
        super().__init__()
        self.channels, self.padding, self.conv = channels, channels, nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        assert x.shape[1] == self.channels
        return F.softplus(F.pad(self.conv(x), (self.padding - 8, 0)))


def checking():
    return nn.Sequential(nn.Conv2d(2, 8, 1), Checking(8), Checking(8), nn.Conv2d(8, 3, 1))


def images(channels=3, size=8):
    return lambda: torch.randn(2, channels, size, size)


def tokens():
    return torch.randint(0, 20, (2, 6))


MODELS = {
    "MLP": (mlp, lambda: torch.randn(3, 12)),
    "LeNet-5": (lenet, images(1, 28)),
    "VGG-BN": (vgg, images()),
    "ResNet-18": (resnet18, images()),
    "ResNet-50": (resnet50, images()),
    "WRN": (wrn, images()),
    "DenseNet": (densenet, images()),
    "MobileNet": (mobilenet, images()),
    "ResNeXt": (resnext, images()),
    "squeeze-and-excitation": (squeeze_excite, images()),
    "U-Net": (UNet, images()),
    "1-D": (conv1d, lambda: torch.randn(2, 2, 40)),
    "3-D": (conv3d, lambda: torch.randn(2, 1, 6, 6, 6)),
    "asserted widths": (checking, images(2)),
    "recurrent": (Recurrent, tokens),
    "a recurrence by hand": (Unrolled, lambda: torch.randn(2, 4, 3)),
    "GPT, fused": (lambda: GPTBlock(partial(Attention, fused=True)), tokens),
    "GPT, separate": (lambda: GPTBlock(partial(Attention, fused=False)), tokens),
    "GPT, counting": (lambda: GPTBlock(CountingAttention), tokens),
    "TransformerEncoderLayer": (encoder_layer, lambda: torch.randn(2, 6, 16)),
    "Transformer": (Translator, sentences),
    "GPT-2": (gpt2, tokens),
    "BERT": (bert, tokens),
    "Llama": (llama, tokens),
    "T5": (t5, tokens),
    "ViT": (vit, images()),
    "Swin": (swin, images()),
    "SegFormer": (segformer, images(size=16)),
}
AS_GRAPH = {"GPT, counting"}


def build(name, dtype=torch.float64):
    """A model and its inputs, with random values wherever a fresh model has zeros or ones."""
    make, inputs = MODELS[name]
    model, x = make(), inputs()
    with torch.no_grad():
        model(x)  # lazy layers take their size
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.normal_(0.5, 0.5)
        for key, buffer in model.named_buffers():
            if key.endswith("running_mean"):
                buffer.normal_()
            elif key.endswith("running_var"):
                buffer.uniform_(0.5, 2.0)
    return model.to(dtype), x.to(dtype) if x.is_floating_point() else x


def set_gates(sparsifier, density):
    """Open a random share of the gates, to values between 0 and 1 and at 1; close the others."""
    with torch.no_grad():
        log_alpha = sparsifier.log_alpha
        opened = torch.empty_like(log_alpha).uniform_(-2, 4)
        log_alpha.copy_(torch.where(torch.rand_like(log_alpha) < density, opened, -5.0))
