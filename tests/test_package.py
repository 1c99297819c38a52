"""The package as a whole: its names, its import directions, its pins."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import lzero

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lzero"

# Each part may import from the parts before it. `errors`, `arguments` and `files` are open to all.
ORDER = [
    "tensors", "sizes", "traceless", "pending", "laws", "gates", "layers", "attention", "structure", "bank",
    "attach", "belonging", "gating", "wiring", "plan", "decision", "surgery", "verify", "proof", "patch", "graph",
    "cutting", "swapping", "trial", "shrink", "costs", "attachment", "sparsifier", "sparsify", "per_structure",
    "budgets", "search", "projection", "objectives", "compact", "preview", "measure", "latency", "provenance",
    "subnetwork", "storage", "formats", "export", "data", "zoo", "recipes", "training", "report", "reproduce",
    "cli",
]  # fmt: skip
OPEN_TO_ALL = {"errors", "arguments", "files"}


def test_the_public_names_are_frozen():
    flow = [
        "HardConcrete",
        "Gate",
        "sparsify",
        "Sparsifier",
        "Penalty",
        "Constraint",
        "fit",
        "measure",
        "compact",
        "verify",
        "save",
        "load",
        "export",
        "LzeroError",
    ]
    assert lzero.__all__ == flow
    assert all(getattr(lzero, name) is not None for name in lzero.__all__)


def _part(module_path):
    relative = module_path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def _imported_parts(module_path):
    """What a module imports to run; what it imports for its types alone may come from anywhere."""
    tree = ast.parse(module_path.read_text())
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lzero."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "lzero":
            yield from (alias.name for alias in node.names)


def test_imports_point_one_way():
    wrong = []
    for module_path in SOURCE.rglob("*.py"):
        part = _part(module_path)
        if part in ("__init__", "__main__"):
            continue
        allowed = OPEN_TO_ALL | {part} | (set() if part in OPEN_TO_ALL else set(ORDER[: ORDER.index(part)]))
        wrong += [f"{module_path.name} → {name}" for name in _imported_parts(module_path) if name not in allowed]
    assert wrong == []


def test_importing_the_library_loads_no_extra():
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, lzero.cli; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert "lzero.laws" in loaded
    assert {"matplotlib", "scipy", "lightning", "sklearn", "transformers", "onnx"}.isdisjoint(loaded)


def test_every_dependency_is_pinned_to_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#"
    )
    assert pins["torch"] == "2.13.0"
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    names = {re.split(r"[><=\[]", requirement)[0] for requirement in wanted} - {"lzero"}
    assert names <= set(pins)


def test_make_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    targets = re.search(r"\.PHONY: (.*)", text)[1].split()
    assert re.findall(r"^([a-z-]*):.*## ", text, re.MULTILINE) == targets


def test_types_travel_with_the_package():
    assert (SOURCE / "py.typed").is_file()
