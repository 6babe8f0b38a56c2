"""Doubles of torch and of what calls itself torch-neuronx, as far as an environment check looks at them.

Grades of evidence as in smoketest/doctor/facts.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from doubles.site import Site

__all__ = ["add_legacy", "add_lookalike", "add_native", "add_placeholder", "add_sdk", "add_torch"]

_TORCH = """
__version__ = "{version}"
_names = {{"cpu"}}


class device:
    def __init__(self, name):
        if name not in _names:
            raise RuntimeError(f"Expected one of cpu device type at start of device string: {{name}}")
        self.name = name

    def __str__(self):
        return self.name
"""

# [PRE] `torch.backends: torch_neuronx:_autoload`; torch.neuron with is_available and device_count.
_NATIVE = """
import torch

{on_import}


class _Neuron:
    def is_available(self):
        {is_available}

    def device_count(self):
        return {count}


torch._names.add("neuron")
torch.neuron = _Neuron()


def _autoload():
    pass
"""


def add_torch(site: Site, version: str = "2.14.0", *, on_import: str = "") -> None:
    """A torch of a version, that may do something else on import."""
    site.add("torch", version, {"torch/__init__.py": on_import + "\n" + _TORCH.format(version=version)})


def add_native(
    site: Site,
    version: str = "2.14.3.0.1234",
    *,
    on_import: str = "",
    is_available: str = "return True",
    count: int = 2,
    collect_env: str = "",
    more: dict[str, str] | None = None,
    requires: Sequence[str] = (),
) -> None:
    """The native backend. [PRE] its entry points and part; [PUB] its numbers 2.13.3.0.* and 2.14.3.0.*."""
    files = {
        "torch_neuronx/__init__.py": _NATIVE.format(on_import=on_import, is_available=is_available, count=count),
        "torch_neuronx/neuron_dynamo_backend/__init__.py": "",
        "torch_neuronx/collect_env.py": collect_env,
    }
    points = {
        "torch.backends": {"torch_neuronx": "torch_neuronx:_autoload"},
        "torch_dynamo_backends": {"neuron": "torch_neuronx.neuron_dynamo_backend:neuron_backend_wrapper"},
    }
    site.add("torch-neuronx", version, files | (more or {}), points, requires)


def add_legacy(site: Site, version: str = "2.9.0.2.15.32035") -> None:
    """The XLA-based product. [PUB] its number in SDK 2.33.0; [INFER] its parts and company.

    Loaded, it leaves a file ``loaded`` in its folder.
    """
    files = {
        "torch_neuronx/__init__.py": "from pathlib import Path; Path(__file__).with_name('loaded').touch()",
        "torch_neuronx/xla_impl/__init__.py": "",
        "torch_neuronx/pyhlo/__init__.py": "",
    }
    site.add("torch-neuronx", version, files)
    site.add("torch-xla", "2.9.0", {"torch_xla/__init__.py": ""})
    site.add("libneuronxla", "2.2.1", {"libneuronxla/__init__.py": ""})


def add_placeholder(site: Site) -> None:
    """What PyPI has under the name since 2022. [INFER] its version, 1.0."""
    site.add("torch-neuronx", "1.0", {"torch_neuronx/__init__.py": ""})


def add_lookalike(site: Site, register: str) -> None:
    """libtorch-neuronx-lite, which takes the device's name. [USER] Difflet plan."""
    source = f"import torch\n\n\ndef register():\n    {register}\n"
    points = {"torch.backends": {"neuron_lite": "libtorch_neuronx_lite:register"}}
    site.add("libtorch-neuronx-lite", "0.3.0", {"libtorch_neuronx_lite.py": source}, points)


def add_sdk(site: Site) -> None:
    """Compiler and kernel language of SDK 2.33.0. [PUB] component list."""
    site.add("neuronx-cc", "2.28.7631.0", {"neuronxcc/__init__.py": ""})
    site.add("nki", "0.7.0", {"nki/__init__.py": ""})
