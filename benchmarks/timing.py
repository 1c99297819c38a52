"""Interleaved timing, as the library does it."""

from lzero.latency import machine, median_seconds

__all__ = ["machine", "median_seconds"]
