"""What is made once for a structure and kept, until units are removed or the model moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lzero.tensors import outside_inference_mode

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from lzero.sparsifier import Sparsifier
    from lzero.structure.frozen import Structure


T = TypeVar("T")


class PerStructure(Generic[T]):
    """The result of `make(device)`: made anew where the model has shrunk or moved; copies make their own."""

    def __init__(self, sparsifier: Sparsifier, make: Callable[[torch.device], T]) -> None:
        self._sparsifier, self._make = sparsifier, make
        self._kept: tuple[Structure, torch.device, T] | None = None

    def __call__(self, device: torch.device) -> T:
        """What there is for the structure as it is now."""
        structure = self._sparsifier.structure
        if self._kept is None or self._kept[0] is not structure or self._kept[1] != device:
            with outside_inference_mode():  # what is kept must serve a training too
                self._kept = structure, device, self._make(device)
        return self._kept[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}
