"""Defaults of two variables, by the build. [PRE] _build_config.py: `os.environ.setdefault` at import"""

import json
import os
from pathlib import Path

BEHAVIOUR = json.loads(Path(__file__).with_name("behaviour.json").read_text("utf-8"))

_DEV = BEHAVIOUR["build"] == "DEV"
os.environ.setdefault("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "1" if _DEV else "0")
os.environ.setdefault("NEURON_LAUNCH_BLOCKING", "0" if _DEV else "1")
