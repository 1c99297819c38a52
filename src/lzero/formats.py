"""Files that other programs run: how a captured program becomes one, and how the file is run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from lzero.errors import ExportError
from lzero.tensors import tensor_leaves
from lzero.traceless import same_noise

Run = Callable[[tuple[Any, ...]], list[Tensor]]  # from positional inputs to all tensors of the output
LARGEST_ONNX = 2**31 - 2**24  # bytes of weights: a protobuf file holds 2 GiB, graph and names included


@dataclass(frozen=True)
class Format:
    """How a program becomes a file, and how the file is run; `needs` are packages of the extra `export`."""

    write: Callable[[ExportedProgram, Path], None]
    read: Callable[[Path], Run | None]
    needs: tuple[str, ...] = ()
    has_devices: bool = True


def run(model: Callable[..., object], inputs: tuple[Any, ...]) -> list[Tensor]:
    """All tensors of a model's output, on the CPU; with the same noise each time, for models that draw some."""
    with torch.no_grad(), same_noise():
        return [tensor.detach().cpu() for tensor in tensor_leaves(model(*inputs))]


def one_line(error: BaseException) -> str:
    """The beginning of a message that may have many lines."""
    return " ".join(str(error).split())[:300]


def _write_pt2(program: ExportedProgram, path: Path) -> None:
    with path.open("wb") as file:  # given a path, torch warns of the temporary file's suffix
        torch.export.save(program, file)


def _read_pt2(path: Path) -> Run:
    with path.open("rb") as file:
        module = torch.export.load(file).module()
    return lambda inputs: run(module, inputs)


def _write_onnx(program: ExportedProgram, path: Path) -> None:
    size = sum(tensor.nbytes for tensor in program.state_dict.values())
    if size > LARGEST_ONNX:
        raise ExportError(f"{size / 2**30:.1f} GiB of weights: an ONNX file holds 2; write a .pt2 file instead")
    outputs = len(program.graph_signature.user_outputs)
    names = ["output"] if outputs == 1 else [f"output_{k}" for k in range(outputs)]
    try:
        written = torch.onnx.export(program, dynamo=True, output_names=names, verbose=False)
    except torch.onnx.OnnxExporterError as error:
        why = one_line(error.__cause__ or error)
        raise ExportError(f"torch.onnx cannot translate the model: {why}; a .pt2 file takes every operation") from error
    assert written is not None  # noqa: S101 (it is so for dynamo=True)
    sizes = [size for value in written.model.graph.inputs for size in value.shape or ()]
    open_sizes = [size for size in sizes if not isinstance(size, int)]
    written.rename_axes(dict.fromkeys(open_sizes[:1], "batch"))
    path.write_bytes(written.model_proto.SerializeToString())


def _read_onnx(path: Path) -> Run | None:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # its errors are raised as well
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run_onnx(inputs: tuple[Any, ...]) -> list[Tensor]:
        tensors = zip(session.get_inputs(), tensor_leaves(inputs), strict=True)
        named = {each.name: tensor.numpy(force=True) for each, tensor in tensors}
        return [torch.from_numpy(array) for array in session.run(None, named)]

    return run_onnx


FORMATS = {
    ".onnx": Format(_write_onnx, _read_onnx, needs=("onnx", "onnxscript"), has_devices=False),
    ".pt2": Format(_write_pt2, _read_pt2),
}
