"""A plain model in a file that other programs run: ONNX, or a program of torch.export. What was written is checked."""

from __future__ import annotations

import importlib
import logging
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lzero.arguments import path_of
from lzero.belonging import check_plain
from lzero.errors import ArgumentError, ExportError, MissingExtraError
from lzero.files import write_atomically
from lzero.formats import FORMATS, Format, one_line, run
from lzero.structure.capture import Inputs, as_tuple, capture
from lzero.tensors import duplicate, tensor_leaves
from lzero.verify import tolerance_of

if TYPE_CHECKING:
    from collections.abc import Iterator

Case = tuple[tuple[Any, ...], list[Tensor]]  # inputs, and what the model makes of them
CHATTY = ("torch._export", "torch.onnx", "onnxscript", "onnx_ir")
log = logging.getLogger("lzero")


def export(model: nn.Module, path: str | Path, example_inputs: Inputs, *, batch_dim: int | None = 0) -> None:
    """Write a compacted model, or any plain one, as `.onnx` or `.pt2`, in evaluation mode, for batches of any size.

    The file is run and compared with the model on the example inputs, and on batches of other sizes made from them,
    before it takes its place. Running it takes no lzero. The model is left alone. `batch_dim=1` is for models that
    have time first; with `None` the file takes inputs of the examples' sizes alone.

    >>> import tempfile
    >>> x = torch.randn(2, 4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(nn.Linear(4, 3), f"{folder}/small.pt2", x)
    ...     torch.export.load(f"{folder}/small.pt2").module()(x).shape
    torch.Size([2, 3])
    """
    path = path_of(path, "export(model, path, example_inputs)")
    form = _format_of(path)
    check_plain(model)
    inputs = as_tuple(example_inputs)
    model = duplicate(model, model).eval()
    if not form.has_devices:
        model, inputs = model.cpu(), tree_map(lambda x: x.cpu() if isinstance(x, Tensor) else x, inputs)
    with _quiet():
        cases = _cases(model, inputs, batch_dim)
        program = capture(model, _blank(cases[-1][0]), batch_dim=batch_dim)
        with write_atomically(path) as temporary:
            form.write(program, temporary)
            _check(form, temporary, cases, path.name)


def _format_of(path: Path) -> Format:
    form = FORMATS.get(path.suffix)
    if form is None:
        raise ArgumentError.about("path", expected=f"a file that ends in {' or '.join(FORMATS)}", got=path)
    for package in form.needs:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingExtraError.of(package, extra="export") from error
    return form


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch and the packages below it say of their own insides while they write."""
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in CHATTY}
    try:
        for logger in levels:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _cases(model: nn.Module, inputs: tuple[Any, ...], batch_dim: int | None) -> list[Case]:
    """Inputs with the model's outputs: batches of every size tried that the model takes, the largest last."""
    dim = batch_dim or 0
    given = _batch_size(inputs, dim)
    if not given:
        got = ", ".join(str(tuple(x.shape)) for x in tensor_leaves(inputs)) or "none"
        expected = f"a tensor with a batch of at least one, in its dimension {dim}"
        raise ArgumentError.about("example_inputs", expected=expected, got=got)
    cases = []
    for size in sorted({given} if batch_dim is None else {1, given, given + 1}):
        batch = tree_map(lambda x: _resized(x, dim, given, size), inputs)  # noqa: B023 (called at once)
        try:
            cases.append((batch, run(model, batch)))
        except Exception as error:  # whatever the model's code raises: it need not take every size
            if size == given:
                got = f"{type(error).__name__}: {one_line(error)}"
                raise ArgumentError.about("example_inputs", expected="inputs the model takes", got=got) from error
    if batch_dim is not None and len(cases) == 1:
        expected, advice = "a dimension of which the model takes other sizes", "None is for inputs of these sizes alone"
        raise ArgumentError.about("batch_dim", expected=expected, got=batch_dim, advice=advice)
    return cases


def _batch_size(inputs: tuple[Any, ...], dim: int) -> int:
    return next((x.shape[dim] for x in tensor_leaves(inputs) if x.dim() > dim), 0)


def _resized(x: Any, dim: int, given: int, size: int) -> Any:
    """A batch of another size from the same examples; what has no batch stays."""
    is_batch = isinstance(x, Tensor) and x.dim() > dim and x.shape[dim] == given
    return x.index_select(dim, torch.arange(size, device=x.device) % given) if is_batch else x


def _blank(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Zeros in place of the examples: files keep what they were made with, and data is not to travel along."""
    blank: tuple[Any, ...] = tree_map(lambda x: torch.zeros_like(x) if isinstance(x, Tensor) else x, inputs)
    return blank


def _check(form: Format, written: Path, cases: list[Case], name: str) -> None:
    """Run the file on all cases and compare it with the model."""
    try:
        run_file = form.read(written)
    except Exception as error:  # whatever torch and onnxruntime raise
        is_single = all(tensor.dtype == torch.float32 for _, outputs in cases for tensor in outputs)
        advice = "" if is_single else "; float32 is what runs everywhere: model.float()"
        raise ExportError(f"{name} would not load again: {one_line(error)}{advice}") from error
    if run_file is None:
        log.warning("%s: not checked, because onnxruntime is not installed", name)
        return
    for inputs, expected in cases:
        try:
            got = run_file(inputs)
        except Exception as error:  # the same
            shapes = [tuple(x.shape) for x in tensor_leaves(inputs)]
            says = f"{name} would not run with inputs of {', '.join(map(str, shapes))}, as the model does"
            advice = "the model's code must not depend on the size of a batch, as by len(x); x.shape[0] is followed"
            raise ExportError(f"{says}: {one_line(error)}; {advice}; batch_dim says where it is") from error
        _compare(expected, got, name)


def _compare(expected: list[Tensor], got: list[Tensor], name: str) -> None:
    try:
        for one, other in zip(expected, got, strict=True):
            torch.testing.assert_close(other, one, rtol=0, atol=_allowed(one), equal_nan=True)
    except (AssertionError, ValueError) as error:
        raise ExportError(f"{name} would give other outputs than the model: {one_line(error)}") from error


def _allowed(expected: Tensor) -> float:
    """The largest difference: what `verify` tolerates, relative to the largest number."""
    finite = expected[expected.isfinite()]
    if not finite.is_floating_point() or not finite.numel():
        return 0.0
    return tolerance_of(expected.dtype) * float(finite.abs().max())
