"""The tool that makes a profile file from a registry keeps what counts, and says where it is from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from smoketest.operators.profile import load_profile

TOOL = Path(__file__).parents[2] / "tools" / "convert_registry.py"

REGISTRY = {
    "native": {"aten::mul.out": {"via": "torch-mlir @register_aten"}, "aten::clone": {"via": "C++ TORCH_LIBRARY_IMPL"}},
    "outcomes": {
        "aten::mul.Tensor": {"outcome": "native_via_out", "through": "aten::mul.out"},
        "aten::acos": {"outcome": "fallback_via_out", "through": "aten::acos.out", "tracker_name": "aten::acos.out"},
        "aten::normal_": {"outcome": "fallback", "tracker_name": "aten::normal_"},
        "aten::pad": {"outcome": "composite_explicit"},
    },
    "view_whitelist": ["aten::view_as_real"],
    "compile": {
        "decompositions": [{"kind": "custom", "op": "aten::topk.default", "overloads": ["aten::topk"]}],
        "known_unsupported": [{"op": "torch.operator", "why": "unknown op", "source": "spec", "confidence": "x"}],
    },
}


def test_a_registry_becomes_a_profile(tmp_path: Path) -> None:
    source, target = tmp_path / "registry.json", tmp_path / "profile.json"
    source.write_text(json.dumps(REGISTRY))
    subprocess.run([sys.executable, TOOL, source, target], check=True)
    profile = load_profile(target)
    assert profile.registered_by == {"aten::mul.out": "torch_mlir", "aten::clone": "cpp"}
    assert profile.is_native("aten::mul.Tensor")
    assert profile.fallback_name("aten::acos") == "aten::acos.out"
    assert profile.fallback_name("aten::normal_") == "aten::normal_"
    assert profile.fallback_name("aten::pad") is None
    assert profile.decompositions == {"aten::topk": "custom"}
    assert profile.known_unsupported[0].op == "torch.operator"
    assert profile.grade == "PRE"
