"""From what was seen to lines with a verdict: a pure function. What is right comes from `facts` only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smoketest.doctor import facts
from smoketest.doctor.device import judge_device
from smoketest.doctor.identity import Family, Identity, identify, numbers
from smoketest.doctor.limited import Ended, TimedOut
from smoketest.doctor.lines import Diagnosis, Line, Topic, Verdict
from smoketest.doctor.observed import Folder, Machine, Observed, Packages, Step
from smoketest.doctor.words import count, dotted, ending_words, failure, last_line, parse_json, short, size
from smoketest.extras import install

__all__ = ["changing_settings", "judge", "judge_without_device"]

_FRESH = "in a fresh environment of Python 3.12 to 3.14"
_UNKNOWN_PACKAGES = "the packages could not be listed"


def judge(seen: Observed) -> Diagnosis:
    """What the observations mean for device ``neuron``, and for the emulated one."""
    packages = seen.packages if isinstance(seen.packages, Packages) else None
    identity = identify(packages) if packages else Identity("absent")
    usable = judge_device(seen, identity, known=packages is not None)
    facing = _Facing(seen, packages, identity, usable.verdict == "ok")
    lines = (
        _python(facing),
        _torch(facing),
        _neuronx(facing),
        _pair(facing),
        *_beside(facing),
        _compiler(facing),
        _nki(facing),
        _driver(facing),
        _devices(facing),
        _collect_env(facing),
        _instance(facing),
        _system(facing),
        *_settings(seen),
        *_caches(seen),
        usable,
    )
    return Diagnosis(lines, (_emulated(facing), _lowering(facing)))


def judge_without_device(seen: Observed, *, usable: bool) -> tuple[Line, ...]:
    """The lines that need no device and no tool, in the order of `Topic`.

    Args:
        seen: as `probe.observe_quickly` gives it.
        usable: whether a run had a device; a sign against it is not firmer than that.
    """
    packages = seen.packages if isinstance(seen.packages, Packages) else None
    facing = _Facing(seen, packages, identify(packages) if packages else Identity("absent"), usable)
    lines = (_python, _torch, _neuronx, _pair)
    more = (_compiler, _nki, _driver, _instance, _system)
    return (
        *(line(facing) for line in lines),
        *_beside(facing),
        *(line(facing) for line in more),
        *_settings(seen),
        *_caches(seen),
    )


def changing_settings(environ: Mapping[str, str]) -> list[tuple[facts.Setting, str]]:
    """The settings that change what a run measures or shows, as they are set here, and their values."""
    return [
        (setting, environ[setting.name])
        for setting in facts.SETTINGS
        if setting.name in environ and environ[setting.name].strip().lower() not in setting.harmless
    ]


@dataclass(frozen=True)
class _Facing:
    """What a line is judged from. `usable`: ``torch.neuron`` has a device, whatever the other signs say."""

    seen: Observed
    packages: Packages | None
    identity: Identity
    usable: bool

    def unless_usable(self, verdict: Verdict) -> Verdict:
        """A sign against a device cannot be firmer than the device itself."""
        return "warn" if self.usable and verdict == "fail" else verdict

    def requires(self, name: str) -> bool:
        """Whether torch-neuronx says that it needs this distribution."""
        return self.packages is not None and any(name in found.requires for found in self.packages.all("torch-neuronx"))

    def version(self, name: str) -> str | None:
        """Of a distribution."""
        return self.packages.version(name) if self.packages else None


# --- Python and torch ------------------------------------------------------------------------------------------------


def _python(facing: _Facing) -> Line:
    expected = "3.12, 3.13 or 3.14: torch-neuronx has wheels for these"
    if facing.packages is None:
        ending = facing.seen.packages
        assert not isinstance(ending, Packages)
        return Line(
            Topic.PYTHON,
            f"the interpreter {ending_words(ending, 'answers')}",
            expected,
            "fail",
            "Run smoketest with the interpreter your model runs with, and see that it starts: `python -c pass`.",
        )
    found = ".".join(map(str, facing.packages.python))
    if facing.packages.python[:2] in facts.WHEEL_PYTHONS:
        return Line(Topic.PYTHON, found, expected, "ok")
    if facing.identity.native:
        return Line(
            Topic.PYTHON,
            found,
            expected,
            "warn",
            "torch-neuronx is installed all the same; where it misbehaves, use an environment of Python 3.12 to 3.14.",
        )
    return Line(
        Topic.PYTHON,
        found,
        expected,
        facing.unless_usable("fail"),
        "Make an environment of Python 3.12 to 3.14, and install torch-neuronx and smoketest there.",
    )


def _torch(facing: _Facing) -> Line:
    expected = "2.13 or 2.14, loading without an error"
    step = facing.seen.backend.step("import torch")
    version = facing.version("torch")
    if version is None and facing.packages is not None and not (step and step.state == "done"):
        return Line(Topic.TORCH, "torch is not installed", expected, "fail", _install_torch(facing.identity))
    if step is None:
        return Line(
            Topic.TORCH,
            f"{version or 'torch'}; not loaded: the probe {ending_words(facing.seen.backend.ending)}",
            expected,
            "unknown",
        )
    if step.state == "done":
        return _loaded_torch(str(step.value), _foreign_failure(facing.seen.backend.steps), expected)
    if step.state == "begun" and isinstance(facing.seen.backend.ending, TimedOut):
        return Line(
            Topic.TORCH,
            f"{version or 'torch'}; import torch {ending_words(facing.seen.backend.ending)}",
            expected,
            "unknown",
            "Run `python -c 'import torch'` once, which warms a cold disk, and ask again.",
        )
    return Line(
        Topic.TORCH,
        f"torch {version or 'of no distribution'} does not load: {failure(step, facing.seen.backend.ending)}",
        expected,
        "fail",
        "Reinstall it: `pip install --force-reinstall 'torch==2.14.0'`, or 2.13.0 for torch-neuronx 2.13.3.",
    )


def _foreign_failure(steps: tuple[Step, ...]) -> Step | None:
    """The backend of somebody else that ends every ``import torch``; torch-neuronx's own is judged with its device."""
    return next(
        (
            step
            for step in steps
            if step.name.startswith("autoload ") and step.name != "autoload torch_neuronx" and step.state == "raised"
        ),
        None,
    )


def _loaded_torch(version: str, foreign: Step | None, expected: str) -> Line:
    if foreign is not None:
        return Line(
            Topic.TORCH,
            f"import torch fails with a backend it loads by itself: {foreign.name} raises {short(foreign.error)}",
            expected,
            "fail",
            "Uninstall the package of that backend, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0.",
        )
    if facts.TORCH_FIRST <= numbers(version)[:2] < facts.TORCH_LIMIT:
        return Line(Topic.TORCH, version, expected, "ok")
    return Line(
        Topic.TORCH,
        f"torch {version} is not of the releases smoketest and torch-neuronx work with",
        expected,
        "fail",
        "Install torch 2.14.0, or 2.13.0 for torch-neuronx 2.13.3: `pip install 'torch==2.14.0'`.",
    )


def _install_torch(identity: Identity) -> str:
    pair = next((pair for pair in facts.PAIRS if _is_of(identity.version, pair)), facts.PAIRS[-1])
    return f"Install the release torch-neuronx is built for: `pip install 'torch=={pair.torch}'`."


def _pair(facing: _Facing) -> Line:
    expected = "; ".join(f"torch-neuronx {dotted(pair.neuronx)} with torch {pair.torch}" for pair in facts.PAIRS)
    step = facing.seen.backend.step("import torch")
    torch = str(step.value) if step and step.state == "done" else facing.version("torch")
    neuronx = facing.identity.version
    if torch is None or neuronx is None or not facing.identity.native:
        return Line(Topic.PAIR, "not compared: there are not both of them", expected, "unknown")
    found = f"torch-neuronx {neuronx} with torch {torch}"
    pair = next((pair for pair in facts.PAIRS if _is_of(neuronx, pair)), None)
    if pair is None:
        return Line(Topic.PAIR, f"{found}: no document names its pair", expected, "unknown")
    wanted, given = numbers(pair.torch), numbers(torch)[:3]
    if given == wanted:
        return Line(Topic.PAIR, found, expected, "ok")
    verdict: Verdict = "warn" if given[:2] == wanted[:2] else "fail"
    advice = f"Install the torch it is built for: `pip install 'torch=={pair.torch}'`."
    return Line(Topic.PAIR, f"{found} is no documented pair", expected, verdict, advice)


def _is_of(version: str | None, pair: facts.Pair) -> bool:
    return version is not None and numbers(version)[:3] == pair.neuronx


# --- torch-neuronx ---------------------------------------------------------------------------------------------------

_NATIVE = "the native backend, 2.13.3 or 2.14.3"
_INSTALL = f"`{facts.INSTALL}` from {facts.INDEX}."
_INSTALL_FRESH = f"Install the native release {_FRESH}: {_INSTALL}"

_FAMILIES: dict[Family, tuple[Verdict, str, str]] = {
    "native": ("ok", "{version}, the native backend", ""),
    "unconfirmed": (
        "warn",
        "{version}: a native number, and no other sign of the native backend",
        "Reinstall it where device neuron does not work: " + _INSTALL,
    ),
    "beta": (
        "fail",
        "torch-neuronx {version} is a closed beta of the native backend",
        _INSTALL_FRESH,
    ),
    "newer": (
        "fail",
        "torch-neuronx {version} is newer than this smoketest knows (below 2.15)",
        "Upgrade smoketest, or install a release it knows: " + _INSTALL,
    ),
    "unreleased": (
        "fail",
        "torch-neuronx {version} is a native backend under no release's number",
        _INSTALL_FRESH,
    ),
    "legacy": (
        "fail",
        "torch-neuronx {version} is the older XLA-based product of the same name, which has no device neuron",
        f"The two cannot share an environment. {_INSTALL_FRESH}",
    ),
    "placeholder": (
        "fail",
        "torch-neuronx {version} is the empty placeholder on PyPI, not the backend",
        f"`pip uninstall torch-neuronx`, then {_INSTALL}",
    ),
    "lookalike": (
        "fail",
        "torch-neuronx is not installed, something else goes by its name: {signs}",
        f"What runs there is not the backend. Remove that, and install the native release: {_INSTALL}",
    ),
    "contradictory": (
        "fail",
        "torch-neuronx {version} bears signs of more than one product: {signs}",
        _INSTALL_FRESH,
    ),
    "broken": (
        "fail",
        "torch-neuronx {version} is registered, but has no module torch_neuronx",
        f"Reinstall it: `{facts.INSTALL} --force-reinstall` from {facts.INDEX}.",
    ),
    "absent": (
        "fail",
        facts.ABSENT,
        f"On a Trn2 or Trn3 instance follow {facts.QUICKSTART}: {_INSTALL}",
    ),
}


def _neuronx(facing: _Facing) -> Line:
    if facing.packages is None:
        return Line(Topic.NEURONX, _UNKNOWN_PACKAGES, _NATIVE, "unknown")
    verdict, found, advice = _FAMILIES[facing.identity.family]
    identity = facing.identity
    found = found.format(version=identity.version, signs=", ".join(identity.signs))
    if identity.family in ("native", "legacy") and len(identity.signs) > 1:
        found += f" ({', '.join(identity.signs[1:])})"
    return Line(Topic.NEURONX, found, _NATIVE, verdict, advice)


def _beside(facing: _Facing) -> Iterator[Line]:
    """Packages that do not go together with torch-neuronx."""
    expected = "torch-neuronx once, without torch-xla, a public torch-mlir or a lookalike"
    packages = facing.packages
    if packages is None:
        yield Line(Topic.BESIDE, _UNKNOWN_PACKAGES, expected, "unknown")
        return
    found = list(_conflicts(packages, native=facing.identity.native))
    for text, verdict, advice in found:
        yield Line(Topic.BESIDE, text, expected, verdict, advice)
    if not found:
        yield Line(Topic.BESIDE, "none", expected, "ok")


def _conflicts(packages: Packages, *, native: bool) -> Iterator[tuple[str, Verdict, str]]:
    """Found, verdict and advice of each."""
    for name in ("torch-neuronx", "torch"):
        versions = [found.version for found in packages.all(name)]
        if len(versions) > 1:
            yield (
                f"{name} is registered {len(versions)} times: {', '.join(versions)}",
                "fail",
                f"Files of one lie over the other. Make a fresh environment, or run `pip uninstall {name}` until it is "
                "gone, and install it again.",
            )
    if not native:
        return
    for name in (*facts.XLA, *facts.LOOKALIKES):
        version = packages.version(name)
        if version is not None:
            yield (
                f"{name} {version} beside the native torch-neuronx",
                "fail",
                f"The two cannot share an environment: `pip uninstall {name}`, or start {_FRESH}.",
            )
    version = packages.version("torch-mlir")
    if version is not None:
        over = any("torch_mlir" in found.folders for found in packages.all("torch-neuronx"))
        yield (
            f"torch-mlir {version}, the public one, beside torch-neuronx, which brings a torch_mlir of its own"
            + (" whose files it lies over" if over else ""),
            "fail" if over else "warn",
            "Lowering may go through the wrong one: `pip uninstall torch-mlir`"
            + (
                ", then reinstall torch-neuronx." if over else ", and do not install smoketest's extra `lowering` here."
            ),
        )


# --- compiler, driver, devices ---------------------------------------------------------------------------------------


def _compiler(facing: _Facing) -> Line:
    return _component(facing, Topic.COMPILER, facts.COMPILER, "neuronxcc", "fail")


def _nki(facing: _Facing) -> Line:
    return _component(facing, Topic.NKI, facts.NKI, "nki", "warn")


def _component(facing: _Facing, topic: str, part: facts.Component, module: str, absent: Verdict) -> Line:
    expected = f"{part.version} of SDK 2.33.0, or newer"
    if facing.packages is None:
        return Line(topic, _UNKNOWN_PACKAGES, expected, "unknown")
    version = facing.version(part.name)
    if version is None and module in facing.packages.modules:
        return Line(topic, f"a module {module} of no distribution: version not known", expected, "unknown")
    if version is None:
        advice = f"It comes with the SDK: follow {facts.QUICKSTART}."
        found = f"{part.name} is not installed"
        if facing.requires(part.name):
            return Line(topic, f"{found}, and torch-neuronx requires it", expected, absent, advice)
        if not facing.identity.native:
            return Line(topic, found, expected, absent, advice)
        # Whether the wheel of torch-neuronx has it inside, no public document tells.
        found += "; torch-neuronx does not say that it requires it, and may bring it"
        return Line(topic, found, expected, "warn", f"Where compiling fails: {advice[0].lower()}{advice[1:]}")
    if numbers(version) < numbers(part.version):
        advice = "Failures it has may be mended in the release that torch-neuronx was published with: upgrade it."
        return Line(topic, f"{version}, older than the SDK", expected, "warn", advice)
    return Line(topic, version, expected, "ok")


def _driver(facing: _Facing) -> Line:
    expected = f"loaded, {facts.DRIVER.version} of SDK 2.33.0 or newer"
    version = facing.seen.machine.driver
    if version is None:
        return Line(
            Topic.DRIVER,
            "no kernel module `neuron` is loaded",
            expected,
            facing.unless_usable("fail"),
            f"On a Trn2 or Trn3 instance install the Neuron driver ({facts.QUICKSTART}); a container uses the host's.",
        )
    if not version:
        return Line(Topic.DRIVER, "loaded; it does not say its version", expected, "unknown")
    if numbers(version) < numbers(facts.DRIVER.version):
        return Line(
            Topic.DRIVER, f"{version}, older than the SDK", expected, "warn", "Upgrade the driver to the SDK's release."
        )
    return Line(Topic.DRIVER, version, expected, "ok")


def _devices(facing: _Facing) -> Line:
    expected = "lists the devices of the machine"
    tool = facing.seen.neuron_ls
    if tool.ending is None:
        return Line(
            Topic.DEVICES,
            "there is no neuron-ls, neither on PATH nor in " + facts.NEURON_LS_FOLDER,
            expected,
            facing.unless_usable("fail"),
            f"On a Trn2 or Trn3 instance install the Neuron tools ({facts.QUICKSTART}).",
        )
    ending = tool.ending
    if not isinstance(ending, Ended):
        advice = "The driver may hang: look at `sudo dmesg | tail`, end what uses the devices, or reboot."
        return Line(Topic.DEVICES, f"neuron-ls {ending_words(ending)}", expected, facing.unless_usable("fail"), advice)
    if ending.code != 0:
        return _failed_listing(facing, ending, expected)
    return _listed(facing, ending.out, expected)


def _failed_listing(facing: _Facing, ending: Ended, expected: str) -> Line:
    advice = "See that the Neuron driver is loaded and the devices are there; `neuron-ls` alone shows the error."
    if facts.NO_INSTANCE_INFORMATION in ending.out + ending.err:
        advice = f"Most likely this is a container without the devices: {facts.CONTAINER}"
    found = f"neuron-ls {ending_words(ending)}: {last_line(ending)}"
    return Line(Topic.DEVICES, found, expected, facing.unless_usable("fail"), advice)


def _listed(facing: _Facing, text: str, expected: str) -> Line:
    """neuron-ls gave a list with an object for each device: [USER] a capture of a trn1.2xlarge, scripts for a trn2."""
    devices = parse_json(text)
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        found = "neuron-ls ended well, but its output is not the list this smoketest knows"
        return Line(Topic.DEVICES, found, expected, "unknown")
    if not devices:
        advice = f"Use a Trn2 or Trn3 instance; {facts.CONTAINER}"
        return Line(Topic.DEVICES, "neuron-ls lists no device", expected, facing.unless_usable("fail"), advice)
    found = count(len(devices), "device") + _cores(devices)
    held = [process for device in devices for process in device.get("neuron_processes") or []]
    if not held:
        return Line(Topic.DEVICES, found, expected, "ok")
    pids = sorted({str(process["pid"]) for process in held if isinstance(process, dict) and "pid" in process})
    found += f", used by {count(len(held), 'process', 'processes')}" + (f": {', '.join(pids)}" if pids else "")
    return Line(Topic.DEVICES, found, expected, "warn", "A core serves one process: wait for it to end, or end it.")


def _cores(devices: Sequence[Mapping[str, Any]]) -> str:
    """How many cores they have, and how many logical ones a process sees of them; empty where neither is told."""
    physical = logical = 0
    for device in devices:
        cores, together = device.get("nc_count"), device.get("logical_neuroncore_config")
        physical += cores if isinstance(cores, int) else 0
        if isinstance(cores, int) and isinstance(together, int) and together > 0:
            logical += cores // together
    if not physical:
        return ""
    return f", {count(physical, 'core')}" + (f" ({logical:,} logical)" if logical and logical != physical else "")


def _collect_env(facing: _Facing) -> Line:
    expected = f"a line with `{facts.COLLECT_ENV_LINE}`"
    tool = facing.seen.collect_env
    if tool.ending is None:
        return Line(
            Topic.COLLECT_ENV, "not run: there is no torch_neuronx.collect_env of a native release", expected, "unknown"
        )
    if not isinstance(tool.ending, Ended):
        return Line(
            Topic.COLLECT_ENV, f"python -m torch_neuronx.collect_env {ending_words(tool.ending)}", expected, "unknown"
        )
    lines = f"{tool.ending.out}\n{tool.ending.err}".splitlines()
    quoted = next((line.strip() for line in lines if facts.COLLECT_ENV_LINE in line.lower()), None)
    if quoted is not None:
        return Line(
            Topic.COLLECT_ENV,
            f"quoted, not judged, since no public document tells its form: {short(quoted)}",
            expected,
            "unknown",
        )
    found = f"it {ending_words(tool.ending)} and has no such line"
    return Line(Topic.COLLECT_ENV, found, expected, "unknown")


# --- machine ---------------------------------------------------------------------------------------------------------


def _instance(facing: _Facing) -> Line:
    expected = "a Trn2 or Trn3 instance of Amazon EC2"
    machine = facing.seen.machine
    if machine.vendor is None or machine.product is None:
        return Line(Topic.INSTANCE, "not known: the machine has no readable DMI names", expected, "unknown")
    if machine.vendor != facts.VENDOR:
        return Line(
            Topic.INSTANCE, f"not known: {machine.vendor} {machine.product} by its DMI names", expected, "unknown"
        )
    if facts.INSTANCES.match(machine.product):
        return Line(Topic.INSTANCE, machine.product, expected, "ok")
    older = bool(facts.OTHER_NEURON_INSTANCES.match(machine.product))
    return Line(
        Topic.INSTANCE,
        f"{machine.product} is "
        + ("of an older Neuron generation, for the XLA-based product" if older else "not a Trn2 or Trn3 instance"),
        expected,
        facing.unless_usable("fail"),
        "Use a Trn2 or Trn3 instance, such as trn2.3xlarge.",
    )


def _system(facing: _Facing) -> Line:
    expected = "Ubuntu 26.04 on x86_64, for which there are wheels"
    machine = facing.seen.machine
    if machine.system != facts.SYSTEM or machine.architecture.lower() not in facts.ARCHITECTURES:
        return Line(
            Topic.SYSTEM,
            f"{machine.system} on {machine.architecture}: torch-neuronx is for Linux on x86_64 only",
            expected,
            facing.unless_usable("fail"),
            "Use a Trn2 or Trn3 instance.",
        )
    if machine.distribution == facts.WHEEL_SYSTEM:
        return Line(Topic.SYSTEM, _system_name(machine), expected, "ok")
    way = facts.OTHER_SYSTEMS.get(
        machine.distribution or ("", ""), "use Ubuntu 26.04, or build torch-neuronx from source"
    )
    return Line(
        Topic.SYSTEM,
        f"{_system_name(machine)}: no standalone wheel of torch-neuronx is published for it",
        expected,
        "warn",
        f"If torch-neuronx does not install or load: {way}.",
    )


def _system_name(machine: Machine) -> str:
    return f"{machine.pretty or 'a Linux without os-release'} on {machine.architecture}"


# --- settings and folders --------------------------------------------------------------------------------------------


def _settings(seen: Observed) -> Iterator[Line]:
    expected = "none set that changes what is measured"
    found = changing_settings(seen.environ)
    for setting, value in found:
        yield Line(
            Topic.SETTINGS,
            f"{setting.name}={value}: {setting.effect}",
            expected,
            "warn",
            f"`unset {setting.name}`, or set it on purpose in every run that is compared (NST304).",
        )
    if not found:
        yield Line(Topic.SETTINGS, "none set", expected, "ok")


def _caches(seen: Observed) -> Iterator[Line]:
    expected = f"folders that can be written to, {size(facts.LITTLE_SPACE)} free (smoketest's own measure)"
    faults = [line for folder in seen.folders.folders if (line := _folder(folder, expected)) is not None]
    yield from faults
    wanted = sum(1 for cache in facts.CACHES if seen.environ.get(cache.name) or cache.default)
    if len(seen.folders.folders) < wanted:
        found = f"not all looked at: the probe {ending_words(seen.folders.ending)}"
        yield Line(Topic.CACHES, found, expected, "unknown", "A file system may hang: see `df`.")
    elif not faults:
        least = min(folder.free for folder in seen.folders.folders)
        names = ", ".join(folder.path for folder in seen.folders.folders)
        yield Line(Topic.CACHES, f"{names}: at least {size(least)} free", expected, "ok")


def _folder(folder: Folder, expected: str) -> Line | None:
    """What is wrong with a folder; None where nothing is."""
    elsewhere = f"Name another place: `export {folder.variable}=/path/with/space`."
    if not folder.folder:
        return Line(Topic.CACHES, f"{folder.path} is, or lies below, what is no folder", expected, "fail", elsewhere)
    if not folder.writable:
        return Line(Topic.CACHES, f"{folder.path} cannot be written to", expected, "fail", elsewhere)
    if folder.free < facts.LITTLE_SPACE:
        verdict: Verdict = "fail" if folder.free < facts.NO_SPACE else "warn"
        advice = f"Make room. {elsewhere}"
        return Line(Topic.CACHES, f"{folder.path}: {size(folder.free)} free", expected, verdict, advice)
    return None


# --- the emulated device ---------------------------------------------------------------------------------------------


def _emulated(facing: _Facing) -> Line:
    expected = "torch 2.13 to 2.15; neither Trainium nor torch-neuronx"
    step = facing.seen.backend.step("import torch")
    if step is not None and step.state == "done":
        version = str(step.value)
        if facts.TORCH_FIRST <= numbers(version)[:2] < facts.TORCH_LIMIT:
            return Line(Topic.EMULATED, f"torch {version}, which it works with", expected, "ok")
        found = f"torch {version} is not of the releases it works with"
        return Line(Topic.EMULATED, found, expected, "fail", "Install one that is: `pip install 'torch>=2.13,<2.16'`.")
    if (step is None or step.state == "begun") and isinstance(facing.seen.backend.ending, TimedOut):
        found = f"not known: import torch {ending_words(facing.seen.backend.ending)}"
        return Line(Topic.EMULATED, found, expected, "unknown", "Run `python -c 'import torch'` once, and ask again.")
    if facing.packages is None:
        return Line(Topic.EMULATED, f"not known: {_UNKNOWN_PACKAGES}", expected, "unknown")
    found = "torch does not load" if facing.version("torch") else "torch is not installed"
    return Line(Topic.EMULATED, found, expected, "fail", "Install it: `pip install 'torch>=2.13,<2.16'`.")


def _lowering(facing: _Facing) -> Line:
    expected = "torch-mlir, for the compile probe"
    if facing.packages is None:
        return Line(Topic.LOWERING, _UNKNOWN_PACKAGES, expected, "unknown")
    version = facing.version("torch-mlir")
    if version is not None:
        return Line(Topic.LOWERING, f"torch-mlir {version}", expected, "ok")
    if "torch_mlir" in facing.packages.modules:
        return Line(Topic.LOWERING, "a torch_mlir that torch-mlir did not install", expected, "unknown")
    advice = f"Without it the compile probe is skipped, which the report says: {install('lowering')}."
    if facing.identity.native:
        advice = "The compile probe is skipped, and the report says so; do not install it beside torch-neuronx."
    return Line(Topic.LOWERING, "torch-mlir is not installed", expected, "warn", advice)
