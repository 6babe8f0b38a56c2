"""Variables of a run on the real device: explicit, the user's own respected but for one that would hide failures."""

from __future__ import annotations

import subprocess
import sys

from smoketest.devices.settings import apply_settings

BLOCKING = "NEURON_LAUNCH_BLOCKING"
STRICT = "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"
HIDES = "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"


def test_what_the_build_would_decide_is_decided_here() -> None:
    environ: dict[str, str] = {}
    assert apply_settings(environ) == {BLOCKING: "1", STRICT: "0", HIDES: "1"}
    assert environ == {BLOCKING: "1", STRICT: "0", HIDES: "1"}


def test_the_user_s_values_stay_but_for_the_one_that_hides_failures() -> None:
    environ = {BLOCKING: "0", STRICT: "1", HIDES: "0"}
    assert apply_settings(environ) == {HIDES: "1"}
    assert environ == {BLOCKING: "0", STRICT: "1", HIDES: "1"}


def test_nothing_is_recorded_as_set_that_was_so_already() -> None:
    assert apply_settings({BLOCKING: "1", STRICT: "0", HIDES: "1"}) == {}


def test_a_name_that_is_missing_costs_a_witness_and_never_the_run() -> None:
    """In a process without any torch_neuronx, and in one whose package raises on import."""
    program = (
        "import sys, types\n"
        "from smoketest.devices import neuron_compat as c\n"
        "there = {name.path for name in c.NAMES} - {name.path for name in c.missing()}\n"
        "assert there == {'torch.accelerator.synchronize'}\n"
        "assert c.compilations() is None and c.copy_module() is None\n"
        "assert c.synchronizer() is None\n"
        "package = types.ModuleType('torch_neuronx'); package.__path__ = []\n"
        "sys.modules['torch_neuronx'] = package\n"
        "sys.modules['torch_neuronx._C'] = types.SimpleNamespace(_get_compilation_cache_stats=lambda: 1 / 0)\n"
        "assert c.compilations() is None\n"
        "package.get_fallback_ops = 'not a function'\n"
        "assert c.function(c.FALLBACKS) is None\n"
        "package.get_fallback_ops = list\n"
        "assert c.function(c.FALLBACKS) is list\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
