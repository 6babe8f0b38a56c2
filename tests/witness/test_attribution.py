"""Every op call of a training step on the device has a module and a line, for real models and both checkpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NO_MODULE = {"backward": {"aten::ones_like": 1}}
"""The gradient that backward begins with: it is made before any node runs, for the line that calls ``backward``."""

NO_LINE: dict[str, dict[str, int]] = {}
"""Nothing: all calls have one."""


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    script = Path(__file__).with_name("attribute_models.py")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("model", ["gpt2", "t5", "llama", "reentrant", "not reentrant"])
def test_every_call_has_a_module_and_a_line_but_for_the_listed(told: dict[str, Any], model: str) -> None:
    seen = told[model]
    assert min(seen["calls"]["forward"], seen["calls"]["backward"]) > 20
    assert seen["no module"] == NO_MODULE
    assert seen["no line"] == NO_LINE


@pytest.mark.parametrize("model", ["gpt2", "t5", "llama", "reentrant", "not reentrant"])
def test_calls_of_an_optimizer_say_which(told: dict[str, Any], model: str) -> None:
    assert told[model]["calls"]["optimizer"] > 10
    assert told[model]["optimizers"] == ["AdamW"]
