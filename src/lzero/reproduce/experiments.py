"""Every experiment, by name."""

from __future__ import annotations

from lzero.reproduce.cifar import CIFAR10, CIFAR100, TRADE_OFF_WRN
from lzero.reproduce.mnist import DENSITIES_LENET, DENSITIES_MLP, DYNAMICS, LENET, MLP, TRADE_OFF

ALL = (MLP, LENET, DYNAMICS, DENSITIES_MLP, DENSITIES_LENET, TRADE_OFF, CIFAR10, CIFAR100, TRADE_OFF_WRN)
EXPERIMENTS = {experiment.name: experiment for experiment in ALL}
