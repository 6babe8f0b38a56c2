"""On the emulated device the graphs are the model's own: nothing of the device's kernels shows up in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_no_frame_of_the_device_shows_up() -> None:
    command = [sys.executable, str(Path(__file__).with_name("on_the_device.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["findings"] == [
        ["NST102", "graph input", "forward", "x = x * self.window.to(x.device)"],
        ["NST201", "aten::digamma", "backward", "return torch.lgamma(x + 3)"],
        ["NST201", "aten::lgamma", "forward", "return torch.lgamma(x + 3)"],
        ["NST204", None, "forward", "if x.sum() > 0:"],
    ]
    assert seen["counts"] == [1, 0, 0]
    assert seen["ids"] == ["0.forward", "1.forward", "1.backward", "0.backward"]
