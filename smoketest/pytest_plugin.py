"""The pytest plugin: checks as test items, and tests that fail where an op falls back to the CPU.

It is loaded wherever this package is installed, so importing it loads nothing of the rest, and unused it does nothing
per test. What needs torch imports it when a test asks for it.

- ``smoketest_checks`` (ini): globs of check files. Each becomes items, one a part: ``configs/gpt2.yaml::eager``.
- ``neuron_watch`` (fixture): ``with neuron_watch(model, allow=["aten::sort*"]): ...`` fails with what fell back.
- ``no_cpu_fallback`` (marker): the same for a whole test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest._code.code import TerminalRepr

    from smoketest.config import Check
    from smoketest.findings import Report
    from smoketest.findings.parts import PartName
    from smoketest.watching import Watch

__all__ = ["CheckFailed", "CheckFile", "CheckItem"]

MARKER = "no_cpu_fallback"
FIXTURE = "neuron_watch"
_DEVICES = ("auto", "neuron", "emulated", "cpu")
_LEAST_PYTEST = (8, 0)
_WIDTH = 100
_NAMES = pytest.StashKey[dict[str, Path]]()
"""The files of the checks collected so far, by the check's name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and ini values; every option has an ini value of the same name."""
    group = parser.getgroup("smoketest", "smoketest: what does not run on Trainium")
    device = f"device of checks and of {FIXTURE}: {', '.join(_DEVICES)} (default: each check's own, else auto)"
    output = "folder that keeps the reports of checks, as PART/NAME/report.md"
    group.addoption("--smoketest-device", choices=_DEVICES, default=None, help=device)
    group.addoption("--smoketest-output", metavar="DIR", default=None, help=output)
    parser.addini("smoketest_checks", "globs of YAML files that are checks, such as configs/*.yaml", "args", [])
    parser.addini("smoketest_device", device, default=None)
    parser.addini("smoketest_output", output, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and see that checks can be run here before any is."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(allow=[], strict=False): fail where an op falls back to the CPU; allow: globs of ops, or entries as"
        " of gate.allow; strict: possible fallbacks fail too",
    )
    if config.getini("smoketest_checks"):
        _refuse_unfit("smoketest_checks")
    if (device := config.getini("smoketest_device")) and device not in _DEVICES:
        raise pytest.UsageError(f"smoketest_device: expected one of {', '.join(_DEVICES)}, found {device!r}")


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is collected, in one line; none where nothing is."""
    if not (globs := config.getini("smoketest_checks")):
        return None
    return f"smoketest: checks {' '.join(globs)}, device {_value(config, 'device') or 'as each check says'}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CheckFile | None:
    """A check for each file that ``smoketest_checks`` means."""
    globs = parent.config.getini("smoketest_checks")
    if not globs or file_path.suffix not in (".yaml", ".yml") or not any(file_path.match(glob) for glob in globs):
        return None
    file: CheckFile = CheckFile.from_parent(parent, path=file_path)
    return file


def pytest_collection_finish(session: pytest.Session) -> None:
    """Give the process its device before any test runs, where one needs it: autograd takes on none after a backward."""
    watched = [item for item in session.items if _is_watched(item)]
    if not watched:
        return
    config = session.config
    try:
        _refuse_unfit(f"{watched[0].nodeid} ({MARKER} or {FIXTURE})")
        for item in watched:
            _refuse_misuse(item)
        if not config.option.collectonly:
            _prepare_device(config)
            config.pluginmanager.register(_marked(), "smoketest-marked")
    except pytest.UsageError as error:
        if not hasattr(config, "workerinput"):
            raise
        # In a worker of pytest-xdist it would end as an internal error, and nobody would read it.
        config.pluginmanager.register(_Refused(str(error)), "smoketest-refused")


def _is_watched(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ()) or item.get_closest_marker(MARKER) is not None


def _refuse_misuse(item: pytest.Item) -> None:
    marks = list(item.iter_markers(MARKER))
    if marks and FIXTURE in getattr(item, "fixturenames", ()):
        raise pytest.UsageError(f"{item.nodeid}: use {FIXTURE} or the marker {MARKER}, not both in one test")
    if any(mark.args or mark.kwargs.keys() - {"allow", "strict"} for mark in marks):
        raise pytest.UsageError(f"{item.nodeid}: {MARKER} takes allow=[...] and strict=True, nothing else")


class _Refused:
    """Fails the tests that cannot be watched here."""

    def __init__(self, why: str) -> None:
        self._why = why

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Say why instead of running the test."""
        if _is_watched(item):
            pytest.fail(self._why, pytrace=False)


def _marked() -> object:
    """A plugin that watches the tests with the marker; registered only where there is one.

    It is made when it is needed: a pytest too old for it can still run what does not use this plugin.
    """

    class Marked:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
            marks = list(item.iter_markers(MARKER))
            if not marks:
                return (yield)
            allow = [entry for mark in marks for entry in mark.kwargs.get("allow", ())]
            with _watching(item, None, allow, any(mark.kwargs.get("strict") for mark in marks)):
                return (yield)

    return Marked()


@pytest.fixture
def neuron_watch(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Watch]]:
    """Watch a block on the device, and fail the test where an op in it fell back to the CPU.

    ``with neuron_watch(model, allow=["aten::sort*"]) as seen: ...``. On a machine without a Trainium the device is the
    emulated one, named ``"neuron"`` as well. What is denied under the default gate fails; a possible fallback is told
    beside the test's output, and fails with ``strict=True``. `seen` is what `smoketest.watch` gives.

    Its arguments: ``model``, whose modules are told by their names; ``allow``, globs of ops or mappings as under
    ``gate.allow``; ``strict``.
    """

    def watch(
        model: Any = None, *, allow: Iterable[str | Mapping[str, Any]] = (), strict: bool = False
    ) -> AbstractContextManager[Watch]:
        if isinstance(allow, str | Mapping):
            raise TypeError(f"allow is a list, such as allow=[{allow!r}]")
        return _watching(request.node, model, tuple(allow), strict)

    return watch


@contextmanager
def _watching(item: pytest.Item, model: Any, allow: Sequence[str | Mapping[str, Any]], strict: bool) -> Iterator[Watch]:
    import smoketest

    __tracebackhide__ = True
    gate = _gate(allow, strict)
    with smoketest.watch(model, trace=True) as seen:
        yield seen
    _judge(item, seen, gate)


def _gate(allow: Sequence[str | Mapping[str, Any]], strict: bool) -> Any:
    """The default gate with these allowances, all of them about fallbacks."""
    from pydantic import ValidationError

    from smoketest.config.models import Allow, Gate

    entries = []
    for entry in allow:
        given = {"op": entry} if isinstance(entry, str) else dict(entry)
        try:
            entries.append(Allow.model_validate({"rule": "NST101", "reason": "the test allows it"} | given))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"allow={[entry]!r}: {where}: {first['msg']}") from None
    return Gate(fallback="deny" if strict else None, allow=entries)


def _judge(item: pytest.Item, seen: Watch, gate: Any) -> None:
    """Fail the test where the gate denies what was seen, or where nobody can tell."""
    import datetime as dt

    from smoketest.gate import judge
    from smoketest.render import words

    __tracebackhide__ = True
    findings = seen.fallbacks
    if not findings and seen.clean is None:
        pytest.fail(f"unknown whether ops fell back: {_why_unknown(seen)}", pytrace=False)
    today = dt.datetime.now(dt.UTC).date()
    result = judge(findings, gate, eager_status="ran", compile_status="skipped", problem=None, today=today)
    rows = ["\n".join(words.row(finding, seen.device_kind)) for finding in words.worst_first(result.findings)]
    if result.exit_code != 0:
        pytest.fail("\n".join([result.headline, *rows]), pytrace=False)
    if rows:
        item.add_report_section("call", "smoketest", "\n".join([result.headline, *rows]))


def _why_unknown(seen: Watch) -> str:
    """Why nobody can tell; what only output that is not read here could name is no reason."""
    entries = [entry for entry in seen.not_checked if entry.what.startswith("fallbacks")]
    return "; ".join(e.why for e in entries if not e.what.startswith("fallbacks that only")) or "no witness could tell"


class CheckFailed(Exception):
    """A part of a check does not pass.

    Args:
        text: the report, as on a terminal.
    """


class CheckFile(pytest.File):
    """A check's YAML file."""

    def collect(self) -> Iterator[CheckItem]:
        """An item for each part that the check has switched on."""
        from smoketest.config.load import load_check
        from smoketest.config.overrides import Override
        from smoketest.errors import ConfigError

        device = _value(self.config, "device")
        try:
            check = load_check(
                self.path, [Override(f"device={device}", f"smoketest_device={device}")] if device else []
            )
        except ConfigError as error:
            raise self.CollectError("\n".join(str(each) for each in (error, *error.others))) from None
        taken = self.config.stash.setdefault(_NAMES, {}).setdefault(check.name, self.path)
        if taken != self.path and _value(self.config, "output"):
            raise self.CollectError(
                f"{self.path}: the name {check.name!r} is taken by {taken}; each check has a folder of its own under"
                " smoketest_output: give it another name"
            )
        parts: tuple[tuple[PartName, bool], ...] = (
            ("eager", True), ("compile", check.compile.enabled), ("parity", check.parity.enabled)
        )  # fmt: skip
        for part, wanted in parts:
            if wanted:
                item: CheckItem = CheckItem.from_parent(self, name=part, part=part, check=check)
                yield item


class CheckItem(pytest.Item):
    """One part of a check.

    Each runs by itself, so that pytest-xdist can spread them: the comparison with plain CPU runs the eager steps once
    more.
    """

    def __init__(self, *, part: PartName, check: Check, **given: Any) -> None:
        super().__init__(**given)
        self.part = part
        self.check = check

    def runtest(self) -> None:
        """Run the part in worker processes.

        Raises:
            CheckFailed: it does not pass under the check's gate.
        """
        report = self._run()
        self.user_properties.append(("smoketest", report.headline))
        if report.exit_code == 130:
            raise KeyboardInterrupt
        status, reason = getattr(report, self.part).status, getattr(report, self.part).reason or ""
        if not _passes(report, self.part):
            # pytest's summary shows the first line of it.
            raise CheckFailed(f"{report.headline}\n\n{_text(report)}")
        if status == "skipped":
            pytest.skip(reason.partition("\n")[0])
        if any(finding.verdict == "warn" for finding in report.findings):
            self.add_report_section("call", "smoketest", _text(report))

    def _run(self) -> Report:
        from smoketest.findings.sites import project_root
        from smoketest.supervise.files import scratch_folder
        from smoketest.supervise.run import Options, run_check

        parity = self.check.parity.model_copy(update={"enabled": self.part == "parity"})
        check = self.check.model_copy(update={"parity": parity})
        kept = _value(self.config, "output")
        with scratch_folder(self.config.rootpath / kept if kept else None) as output:
            options = Options(
                output=output / self.part,
                root=project_root(self.path.parent, check.files),
                eager=self.part != "compile",
                compile=self.part == "compile",
                keep=kept is not None,
                command=f"smoketest run {self.path}",
            )
            return run_check(check, options)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str | TerminalRepr:
        """The report in place of a traceback."""
        from smoketest.errors import SmoketestError

        if isinstance(excinfo.value, CheckFailed | SmoketestError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Where it is from, and how it is called in headings."""
        return self.path, None, f"{self.check.name}: {self.part}"


def _passes(report: Report, part: PartName) -> bool:
    """Whether a part passes. With the comparison the eager steps ran too, whose findings are another item's."""
    if part != "parity":
        return report.status == "pass" or getattr(report, part).status == "skipped"
    denied = [finding for finding in report.findings if finding.rule == "NST106" and finding.verdict == "deny"]
    return report.parity.status in ("ran", "skipped") and not denied


def _text(report: Report) -> str:
    from smoketest.render import render

    return render(report, "terminal", width=_WIDTH)


def _value(config: pytest.Config, name: str) -> str | None:
    """An option, else the ini value of the same name."""
    value: str | None = config.getoption(f"smoketest_{name}") or config.getini(f"smoketest_{name}")
    return value or None


def _prepare_device(config: pytest.Config) -> None:
    """The emulated device for this process, unless the real one is usable or asked for."""
    import smoketest
    from smoketest.errors import DeviceUnavailable

    device = _value(config, "device") or "auto"
    if device == "cpu":
        raise pytest.UsageError(f"{FIXTURE} and {MARKER} need a neuron device: --smoketest-device auto or emulated")
    if device == "neuron" or (device == "auto" and _neuron_available()):
        return  # opened where it is first watched
    if device == "emulated":
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    try:
        smoketest.emulate(warn=False)
    except DeviceUnavailable as error:
        raise pytest.UsageError(str(error)) from None


def _neuron_available() -> bool:
    from smoketest.devices.base import neuron_available

    return neuron_available()


def _refuse_unfit(what: str) -> None:
    """Raise where this environment cannot run what is asked for, naming what there is and what is needed."""
    if (problem := _unfit()) is not None:
        raise pytest.UsageError(f"{what}: {problem}")


def _unfit() -> str | None:
    """What of this environment is too old, too new or not there; None where it is fit. Imports no torch."""
    from importlib import metadata

    from packaging.requirements import Requirement

    if pytest.version_tuple[:2] < _LEAST_PYTEST:
        return f"pytest {pytest.__version__} found, {'.'.join(map(str, _LEAST_PYTEST))} or newer required"
    needs = (Requirement(text) for text in metadata.requires("neuron-smoketest") or ())
    for need in needs:
        if need.name != "torch" or need.marker is not None:
            continue
        try:
            found = metadata.version("torch")
        except metadata.PackageNotFoundError:
            return f"torch is not installed, {need.specifier} required"
        if not need.specifier.contains(found, prereleases=True):
            return f"torch {found} found, {need.specifier} required"
    return None
