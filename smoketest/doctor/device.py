"""The line about ``torch.neuron``: whether torch has a Neuron device, and if not, what the probe ran into."""

from __future__ import annotations

from smoketest.doctor import facts
from smoketest.doctor.identity import Identity
from smoketest.doctor.limited import Ended, Ending
from smoketest.doctor.lines import Line, Topic
from smoketest.doctor.observed import Backend, Observed, Step
from smoketest.doctor.words import ending_words, short

__all__ = ["judge_device"]

_USABLE = "torch.neuron.is_available() is True and there is a device; no op is run to find out"
_LOADS = ("autoload torch_neuronx", "import torch_neuronx")


def judge_device(seen: Observed, identity: Identity, *, known: bool) -> Line:
    """The device as torch sees it."""
    backend = seen.backend
    available = backend.step("torch.neuron.is_available()")
    count = backend.step("torch.neuron.device_count()")
    stuck = next((step for step in backend.steps if step.state == "begun"), None)
    if stuck is not None:
        return _stuck(stuck, backend.ending)
    raised = next((step for step in backend.steps if step.state == "raised" and _concerns(step, identity)), None)
    if raised is not None:
        return _raised(raised)
    if available is None or not known:
        return _no_module(backend, identity, known)
    if not identity.native:
        found = "there is a torch.neuron, but it is not torch-neuronx's"
        return Line(Topic.USABLE, found, _USABLE, "fail", "What runs on it is no measurement of a Trainium: see above.")
    devices = count.value if count else None
    found = f"is_available() is {available.value}, device_count() is {devices}"
    if available.value is True and isinstance(devices, int) and devices > 0:
        return Line(Topic.USABLE, found, _USABLE, "ok")
    hidden = [f"{name}={seen.environ[name]}" for name in facts.VISIBLE_CORES if name in seen.environ]
    advice = "See that `neuron-ls` lists a device, and that no other process holds its cores."
    if hidden:
        advice += f" {' and '.join(hidden)} decides which cores are seen: unset it."
    return Line(Topic.USABLE, f"{found}: torch-neuronx finds no device", _USABLE, "fail", advice)


def _concerns(step: Step, identity: Identity) -> bool:
    """Whether a step that raised says something about the device, rather than about there being no torch-neuronx."""
    if step.name == "torch.device('neuron')":
        return False
    return identity.native or step.name.startswith("torch.neuron")


def _stuck(step: Step, ending: Ending) -> Line:
    """The process hung or died in this step."""
    advice = "Look for a compiler or another user of the device (`ps`, `neuron-ls`), end it, or reboot; then ask again."
    if step.name == "import torch" and not isinstance(ending, Ended):
        advice = "Run `python -c 'import torch'` once, which warms a cold disk, and ask again."
        return Line(Topic.USABLE, f"not asked: import torch {ending_words(ending)}", _USABLE, "unknown", advice)
    if isinstance(ending, Ended):
        found = f"the process {ending_words(ending)} in {step.name}"
        advice = "Reinstall torch and torch-neuronx as a documented pair; see `sudo dmesg | tail` for the driver."
        return Line(Topic.USABLE, found, _USABLE, "fail", advice)
    return Line(Topic.USABLE, f"{step.name} {ending_words(ending)}", _USABLE, "fail", advice)


def _raised(step: Step) -> Line:
    if facts.BUSY.search(step.error):
        return Line(
            Topic.USABLE,
            f"the cores are busy: {step.name} raises {short(step.error)}",
            _USABLE,
            "fail",
            "Another process holds the device, and a core serves one process: `neuron-ls` names it; wait, or end it.",
        )
    advice = "See that `neuron-ls` lists a device, and that no other process holds its cores."
    if step.name == "import torch":
        advice = "See the line about torch."
    elif step.name in _LOADS:
        advice = "See that torch and torch-neuronx are a documented pair and that `neuron-ls` works; reinstall both."
    return Line(Topic.USABLE, f"{step.name} raises {short(step.error)}", _USABLE, "fail", advice)


def _no_module(backend: Backend, identity: Identity, known: bool) -> Line:
    if not backend.steps or not known:
        found = f"not asked: the probe {ending_words(backend.ending)}"
        return Line(Topic.USABLE, found, _USABLE, "unknown", "Put right what the lines above name, and ask again.")
    torch = backend.step("import torch")
    if torch is None or torch.state != "done":
        return Line(Topic.USABLE, "not asked: torch does not load", _USABLE, "fail", "See the line about torch.")
    if backend.step("torch.neuron") is None:
        found = f"not asked: the probe {ending_words(backend.ending)} after {backend.steps[-1].name}"
        return Line(Topic.USABLE, found, _USABLE, "unknown", "Put right what the lines above name, and ask again.")
    name = backend.step("torch.device('neuron')")
    if name is not None and name.state == "done" and not identity.native:
        found = "the device's name is known to torch, but there is no torch.neuron: something took the name only"
        return Line(Topic.USABLE, found, _USABLE, "fail", "See the line about torch-neuronx.")
    if identity.native:
        advice = "See that torch and torch-neuronx are a documented pair; then reinstall both."
        return Line(Topic.USABLE, "torch-neuronx loads, but gives no torch.neuron", _USABLE, "fail", advice)
    advice = "See the line about torch-neuronx."
    return Line(Topic.USABLE, "there is no torch.neuron without torch-neuronx", _USABLE, "fail", advice)
