"""What in a model can be removed: its graph, unit labels on every dimension, one rule per operation, sites."""

from lzero.structure.op import Op, Value
from lzero.structure.registry import register_rule
from lzero.structure.sites import Pinned, Site, Slice

__all__ = ["Op", "Pinned", "Site", "Slice", "Value", "register_rule"]
