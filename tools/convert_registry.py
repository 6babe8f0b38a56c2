"""Turn a registry extracted from a torch-neuronx source tree into an operator profile file.

    python tools/convert_registry.py REGISTRY.json PROFILE.json

The result is sorted and has one entry a line, so that the difference between two profiles can be read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

REGISTERED_BY = {
    "C++ TORCH_LIBRARY_IMPL": "cpp",
    "Python @neuron_op": "neuron_op",
    "Python aten_lib.impl": "impl",
    "torch-mlir @register_aten": "torch_mlir",
}
DECOMPOSED_BY = {
    "inherited from torch._decomp": "inherited",
    "custom": "custom",
    "custom, torch.compile path only": "custom_compile_only",
}


LIMITS = [
    {
        "what": "float64",
        "effect": "computed as float32 and cast back; tensors without dimensions are left alone",
        "source": "python_ops/dtype_autocast.py, base.py",
        "grade": "PRE",
    },
    {
        "what": "int64",
        "effect": "computed as int32 and cast back: larger values wrap",
        "source": "python_ops/cast_policy.py, device_cast.py",
        "grade": "PRE",
    },
    {
        "what": "memory_format",
        "effect": "anything but contiguous and preserve is refused",
        "source": "message: Neuron tensors only support contiguous or preserve memory format",
        "grade": "PRE",
    },
    {
        "what": "complex",
        "effect": (
            "storage and copies work in part, computing does not; a release for PyTorch 2.13 or newer is documented to "
            "take complex ops apart (TORCH_NEURONX_COMPLEX_DECOMPOSE)"
        ),
        "source": "source tree of April 2026, a user's 'complex dtypes are not supported natively on Neuron'",
        "grade": "PRE",
    },
    {
        "what": "copy_layout",
        "effect": "a copy within the device from one layout of memory to another is refused: make both contiguous",
        "source": "message: Neuron->Neuron copy with layout change is not supported yet; when it comes is not known",
        "grade": "PRE",
    },
    {
        "what": "copy_size",
        "effect": "a copy within the device that broadcasts is refused: expand the source",
        "source": "message: Neuron->Neuron copy with size mismatch is not supported",
        "grade": "PRE",
    },
    {
        "what": "copy_destination",
        "effect": "a copy from the host into a tensor that is not contiguous is refused",
        "source": "message: Destination Neuron tensor must be contiguous",
        "grade": "PRE",
    },
    {
        "what": "fallback_view",
        "effect": "a view op without a kernel gives a copy: what is written into it does not reach the base",
        "source": "PyTorch's own cpu_fallback, which warns of it; the view whitelist silences the tracker only",
        "grade": "PRE",
    },
    {
        "what": "fork",
        "effect": "a forked process, such as a DataLoader worker, cannot use the device: use spawn",
        "source": "message: Cannot re-initialize Neuron runtime in forked subprocess",
        "grade": "PRE",
    },
    {
        "what": "forward_ad",
        "effect": "forward-mode differentiation (torch.func.jvp, jacfwd, hessian) has no kernels of the backend's",
        "source": "source tree of April 2026 registers none; what a user would see is not known",
        "grade": "PRE",
    },
]


def convert(registry: dict[str, Any]) -> dict[str, Any]:
    """The fields of an operator profile, from the fields of a registry."""
    outcomes = registry["outcomes"]
    decompositions: dict[str, str] = {}
    for entry in registry["compile"]["decompositions"]:
        for overload in entry["overloads"]:
            decompositions[overload] = DECOMPOSED_BY[entry["kind"]]
    return {
        "name": "torch-neuronx-prerelease-2026-04",
        "note": (
            "Read from a publicly posted pre-release source tree of torch-neuronx (Apache-2.0); nothing was run on a "
            "device. Registered is not the same as working, and a release may differ: expect more kernels."
        ),
        "source": "torch-neuronx pre-release source tree, version 0.1.0",
        "date": "2026-04",
        "grade": "PRE",
        "torch_version": "2.10",
        "native": {op: REGISTERED_BY[entry["via"]] for op, entry in registry["native"].items()},
        "reaches": {op: o["through"] for op, o in outcomes.items() if o["outcome"].endswith("_via_out")},
        "recovered_as": {
            op: entry["python_fallback_tracker_name"]
            for op, entry in registry["native"].items()
            if entry.get("python_fallback_tracker_name", op) != op
        },
        "unimplemented": sorted(op for op, o in outcomes.items() if o["outcome"] == "fallback"),
        "view_whitelist": sorted(registry["view_whitelist"]),
        "decompositions": decompositions,
        "limits": LIMITS,
        "known_unsupported": [
            {"op": e["op"], "why": e["why"], "source": e["source"]} for e in registry["compile"]["known_unsupported"]
        ],
    }


def main(registry: str, profile: str) -> None:
    """Read one file, write the other."""
    text = json.dumps(convert(json.loads(Path(registry).read_text())), indent=0, sort_keys=True, ensure_ascii=False)
    Path(profile).write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
