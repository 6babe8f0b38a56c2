"""The rooms of the house keep to themselves: who may import whom, and who never loads torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "smoketest"

PARENT = {
    "findings": set(),
    "config": {"errors"},
    "gate": {"findings", "config", "errors"},
    "render": {"findings", "config", "errors"},
    # The doctor says what keeps a device from being used; it imports nothing but errors.
    "supervise": {"findings", "config", "errors", "gate", "render", "doctor"},
    "doctor": {"errors"},
    # `explain` reads operator profiles and evidence, which are data: their loaders import no torch (tests/cli).
    "cli": {"findings", "config", "errors", "gate", "render", "supervise", "doctor", "operators"},
}
CHILD = {
    "operators": {"findings", "config", "errors"},
    # The compile backend of the emulated device lowers with the probe's engine, and judges as it does.
    "devices": {"findings", "config", "errors", "operators", "probe"},
    "witness": {"findings", "config", "errors", "operators", "devices"},
    "probe": {"findings", "config", "errors", "operators"},
    "workload": {"findings", "config", "errors", "devices"},
    "worker": {"findings", "config", "errors", "operators", "devices", "witness", "probe", "workload"},
}
SHARED_FILES = {"smoketest.supervise.protocol"}
TORCH_FREE = [
    *PARENT,
    "errors.py",
    "extras.py",
    "process.py",
    "uncollected.py",
    "first_contact.py",
    "pytest_plugin.py",
    "__init__.py",
    "__main__.py",
]


def imports(path: Path) -> set[str]:
    """Modules imported anywhere in a file, `from a.b import c` as both a.b and a.b.c; type-only ones left out."""
    tree = ast.parse(path.read_text())
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files(room: str) -> list[Path]:
    path = PACKAGE / room
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


@pytest.mark.parametrize("room", [*PARENT, *CHILD])
def test_a_room_imports_only_the_rooms_it_may(room: str) -> None:
    allowed = (PARENT | CHILD)[room] | {room}
    rooms = set(PARENT) | set(CHILD)
    for path in files(room):
        for module in imports(path):
            parts = module.split(".")
            if parts[0] != "smoketest" or len(parts) < 2 or parts[1] not in rooms:
                continue
            shared = any(module == name or module.startswith(name + ".") for name in SHARED_FILES)
            assert parts[1] in allowed or (shared and room == "worker") or module == "smoketest.supervise", (
                f"{path.relative_to(PACKAGE)} imports {module}"
            )


def test_of_the_devices_only_the_compile_backend_imports_the_probe() -> None:
    """It is loaded with the first graph; the device itself must not load Dynamo, which the probe does."""
    backend = PACKAGE / "devices" / "emulated" / "dynamo"
    for path in files("devices"):
        probes = {module for module in imports(path) if module.startswith("smoketest.probe")}
        assert not probes or backend in path.parents, f"{path.relative_to(PACKAGE)} imports {probes}"


@pytest.mark.parametrize("room", TORCH_FREE)
def test_the_parent_side_never_names_torch(room: str) -> None:
    for path in files(room):
        assert not {m for m in imports(path) if m.split(".")[0] == "torch"}, f"{path.relative_to(PACKAGE)}"


# Every extension of PyTorch's stands on these, for want of public names; the sweep over OpInfo is no part of a run.
KNOWN_PRIVATE = (
    "torch._ops",
    "torch.testing._internal",
    "torch.utils._pytree",
    "torch.utils._python_dispatch",
)


def test_private_modules_of_pytorch_are_imported_by_compat_modules_only() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.stem in ("compat", "neuron_compat"):
            continue
        private = {
            module
            for module in imports(path)
            if module.startswith("torch.")
            and any(part.startswith("_") for part in module.split("."))
            and not module.startswith(KNOWN_PRIVATE)
        }
        assert not private, f"{path.relative_to(PACKAGE)} imports {private}"


def test_importing_the_package_loads_no_torch() -> None:
    code = "import smoketest, sys; assert 'torch' not in sys.modules; print(smoketest.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0.1.0"
