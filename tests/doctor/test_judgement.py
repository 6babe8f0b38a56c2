"""From observations to verdicts: every kind of finding, without a process or a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from observations import FOLDERS, GIB, HEALTHY, LAPTOP, MACHINE, NATIVE, PACKAGES, SDK, STEPS, TORCH, WELL

from smoketest.doctor import Line, Topic, facts
from smoketest.doctor.identity import identify, numbers
from smoketest.doctor.judge import judge
from smoketest.doctor.limited import Ended, TimedOut
from smoketest.doctor.observed import Backend, Distribution, Listing, Observed, Packages, Step, Tool


def with_packages(*distributions: Distribution, python: tuple[int, int, int] = (3, 12, 4), parts: str = "") -> Packages:
    modules = {name: (f"/v/{name}",) for name in ("torch", "torch_neuronx", "neuronxcc")}
    return Packages(python, distributions, modules, frozenset(parts.split()))


def line(seen: Observed, topic: str) -> Line:
    return judge(seen).of(topic)


def test_a_healthy_machine_has_no_cause_and_exit_code_0() -> None:
    diagnosis = judge(HEALTHY)
    assert diagnosis.cause is None
    assert diagnosis.exit_code == 0
    assert {each.topic for each in diagnosis.lines if each.verdict != "ok"} == {Topic.COLLECT_ENV}


@pytest.mark.parametrize(
    ("version", "family"),
    [
        ("2.13.3.0.1", "native"),
        ("2.14.3.0.9999+abc", "native"),
        ("2.11.3.0.1278", "beta"),
        ("2.12.3.0.1636", "beta"),
        ("2.15.3.0.1", "newer"),
        ("0.1.0", "unreleased"),
        ("2.9.0.2.12", "contradictory"),
    ],
)
def test_a_native_backend_is_told_by_its_number(version: str, family: str) -> None:
    assert identify(with_packages(replace(NATIVE, version=version), parts="neuron_dynamo_backend")).family == family


@pytest.mark.parametrize(
    ("version", "parts", "family"),
    [
        ("2.14.3.0.1", "", "unconfirmed"),
        ("2.14.3.0.1", "xla_impl", "contradictory"),
        ("2.9.0.2.15.32035", "", "legacy"),
        ("2.1.2.2.3.0", "pyhlo", "legacy"),
        ("1.13.1.1.6.0", "xla_impl", "legacy"),
        ("1.0", "", "placeholder"),
        ("1.0.0", "", "placeholder"),
        ("1.0", "pyhlo", "legacy"),
        ("7.7", "", "contradictory"),
    ],
)
def test_one_sign_alone_does_not_decide(version: str, parts: str, family: str) -> None:
    found = identify(with_packages(Distribution("torch-neuronx", version), parts=parts))
    assert found.family == family
    assert found.signs[0] == f"version {version}"


def test_numbers_of_a_version_leave_out_what_is_local() -> None:
    assert numbers("2.13.0+cpu") == (2, 13, 0)
    assert numbers("2.14.0a0+git1234") == (2, 14, 0)
    assert numbers("2.28.7631.0") == (2, 28, 7631, 0)


@pytest.mark.parametrize(
    ("torch", "neuronx", "verdict"),
    [
        ("2.13.0+cpu", "2.13.3.0.1", "ok"),
        ("2.14.0", "2.14.3.0.1", "ok"),
        ("2.14.1", "2.14.3.0.1", "warn"),
        ("2.13.0", "2.14.3.0.1", "fail"),
        ("2.14.0", "2.13.3.0.1", "fail"),
        ("2.15.0", "2.15.3.0.1", "unknown"),
    ],
)
def test_torch_and_torch_neuronx_are_compared_as_documented(torch: str, neuronx: str, verdict: str) -> None:
    packages = replace(PACKAGES, distributions=(TORCH, replace(NATIVE, version=neuronx), *SDK))
    backend = Backend((Step("import torch", "done", torch), *STEPS[1:]), WELL)
    assert line(replace(HEALTHY, packages=packages, backend=backend), Topic.PAIR).verdict == verdict


def test_a_python_without_wheels_fails_only_where_torch_neuronx_is_not_there() -> None:
    old = replace(PACKAGES, python=(3, 11, 7))
    assert line(replace(HEALTHY, packages=old), Topic.PYTHON).verdict == "warn"
    without = replace(old, distributions=(TORCH,), modules={"torch": ("/v/torch",)}, submodules=frozenset())
    assert line(replace(HEALTHY, packages=without), Topic.PYTHON).verdict == "fail"


@pytest.mark.parametrize(
    ("distribution", "verdict", "words"),
    [
        (("ubuntu", "26.04"), "ok", ""),
        (("ubuntu", "24.04"), "warn", "single-framework image (DLAMI)"),
        (("ubuntu", "22.04"), "warn", "its support has ended"),
        (("debian", "12"), "warn", "use Ubuntu 26.04, or build torch-neuronx from source"),
        (None, "warn", "use Ubuntu 26.04"),
    ],
)
def test_systems_are_judged_by_the_wheels_there_are(
    distribution: tuple[str, str] | None, verdict: str, words: str
) -> None:
    found = line(replace(HEALTHY, machine=replace(MACHINE, distribution=distribution)), Topic.SYSTEM)
    assert found.verdict == verdict
    assert words in found.advice


@pytest.mark.parametrize(
    ("vendor", "product", "verdict"),
    [
        ("Amazon EC2", "trn2.48xlarge", "ok"),
        ("Amazon EC2", "trn2u.48xlarge", "ok"),
        ("Amazon EC2", "trn3.48xlarge", "ok"),
        ("Amazon EC2", "trn1.2xlarge", "fail"),
        ("Amazon EC2", "inf2.xlarge", "fail"),
        ("Amazon EC2", "m7i.large", "fail"),
        ("LENOVO", "20XW", "unknown"),
        (None, None, "unknown"),
    ],
)
def test_instance_types(vendor: str | None, product: str | None, verdict: str) -> None:
    silent = Backend((*STEPS[:5], Step("torch.neuron.is_available()", "done", False)), WELL)
    seen = replace(HEALTHY, machine=replace(MACHINE, vendor=vendor, product=product), backend=silent)
    assert line(seen, Topic.INSTANCE).verdict == verdict


def test_a_sign_against_a_device_that_answers_only_warns() -> None:
    seen = replace(HEALTHY, machine=replace(MACHINE, product="trn9.huge", driver=None), neuron_ls=Tool(None))
    diagnosis = judge(seen)
    assert diagnosis.ok
    assert {diagnosis.of(topic).verdict for topic in (Topic.INSTANCE, Topic.DRIVER, Topic.DEVICES)} == {"warn"}


def test_what_could_not_be_asked_is_not_usable() -> None:
    seen = replace(HEALTHY, backend=Backend((), TimedOut(24, "", "")))
    diagnosis = judge(seen)
    assert diagnosis.of(Topic.USABLE).verdict == "unknown"
    assert diagnosis.exit_code == 3
    assert "not asked: the probe did not answer within 24 s" in diagnosis.advice()


def test_of_an_interpreter_that_does_not_answer_nothing_is_known() -> None:
    hung = TimedOut(8, "", "")
    diagnosis = judge(replace(HEALTHY, packages=hung, backend=Backend((), hung)))
    assert diagnosis.of(Topic.PYTHON).verdict == "fail"
    assert {diagnosis.of(topic).verdict for topic in (Topic.TORCH, Topic.NEURONX, Topic.EMULATED)} == {"unknown"}
    assert "whether it is usable here is not known: import torch did not answer within 8 s." in diagnosis.advice()


def test_a_probe_that_ends_on_its_way_says_how_far_it_came() -> None:
    diagnosis = judge(replace(HEALTHY, backend=Backend(STEPS[:2], Ended(1, "", "Traceback"))))
    assert diagnosis.of(Topic.USABLE).found == "not asked: the probe ended with status 1 after autoload torch_neuronx"
    assert diagnosis.exit_code == 3


def test_a_slow_import_of_torch_is_not_called_broken() -> None:
    diagnosis = judge(replace(HEALTHY, backend=Backend((Step("import torch", "begun"),), TimedOut(24, "", ""))))
    assert diagnosis.of(Topic.TORCH).verdict == "unknown"
    assert diagnosis.of(Topic.EMULATED).verdict == "unknown"
    assert "warms a cold disk" in diagnosis.advice()
    assert diagnosis.exit_code == 3


@pytest.mark.parametrize(
    ("ending", "found", "verdict"),
    [
        (Ended(0, "[]", ""), "neuron-ls lists no device", "fail"),
        (Ended(0, "a table", ""), "its output is not the list this smoketest knows", "unknown"),
        (Ended(0, '{"a": 1}', ""), "its output is not the list this smoketest knows", "unknown"),
        (Ended(0, '[{"neuron_device": 0}]', ""), "1 device", "ok"),
        (Ended(-11, "", ""), "neuron-ls was killed by SIGSEGV: it said nothing", "fail"),
        (Ended(1, "", 'level=fatal error="failed to discover"'), 'status 1: level=fatal error="failed to', "fail"),
    ],
)
def test_neuron_ls(ending: Ended, found: str, verdict: str) -> None:
    silent = Backend((*STEPS[:5], Step("torch.neuron.is_available()", "done", False)), WELL)
    judged = line(replace(HEALTHY, neuron_ls=Tool("/bin/neuron-ls", ending), backend=silent), Topic.DEVICES)
    assert found in judged.found
    assert judged.verdict == verdict


@pytest.mark.parametrize(("free", "verdict"), [(6 * GIB, "ok"), (4 * GIB, "warn"), (50 * 2**20, "fail")])
def test_little_space_warns_and_none_fails(free: int, verdict: str) -> None:
    folders = (*FOLDERS[:2], replace(FOLDERS[2], free=free))
    assert line(replace(HEALTHY, folders=Listing(folders, WELL)), Topic.CACHES).verdict == verdict


def test_folders_that_were_not_looked_at_are_not_called_fine() -> None:
    seen = replace(HEALTHY, folders=Listing(FOLDERS[:1], TimedOut(3, "", "")))
    assert line(seen, Topic.CACHES).found == "not all looked at: the probe did not answer within 3 s"
    assert line(seen, Topic.CACHES).verdict == "unknown"


@pytest.mark.parametrize("setting", facts.SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_named_unless_it_has_a_harmless_value(setting: facts.Setting) -> None:
    loud = replace(HEALTHY, environ={setting.name: "other"})
    assert line(loud, Topic.SETTINGS).found == f"{setting.name}=other: {setting.effect}"
    assert line(loud, Topic.SETTINGS).verdict == "warn"
    for value in setting.harmless:
        assert line(replace(HEALTHY, environ={setting.name: value}), Topic.SETTINGS).verdict == "ok"


def test_the_releases_accepted_are_those_the_device_and_the_package_accept() -> None:
    from smoketest.devices.installed import BUSY, FIRST, LIMIT

    assert (facts.FIRST, facts.LIMIT) == (FIRST, LIMIT)
    assert facts.BUSY == BUSY
    lines = (Path(__file__).parents[2] / "pyproject.toml").read_text().splitlines()
    (line,) = [each.strip() for each in lines if each.strip().startswith('"torch-neuronx')]
    requirement = line.strip('",').partition(";")[0]
    assert f"'{requirement}'" in facts.INSTALL


def test_settings_are_listed_once() -> None:
    names = [setting.name for setting in facts.SETTINGS]
    assert len(names) == len(set(names))


def test_a_component_older_than_the_sdk_warns() -> None:
    packages = replace(PACKAGES, distributions=(TORCH, NATIVE, Distribution("neuronx-cc", "2.26.1.0"), SDK[1]))
    assert line(replace(HEALTHY, packages=packages), Topic.COMPILER).verdict == "warn"
    assert line(replace(HEALTHY, machine=replace(MACHINE, driver="2.30.0.0")), Topic.DRIVER).verdict == "warn"


def test_a_torch_that_the_emulated_device_does_not_work_with_is_said_to_be_one() -> None:
    backend = Backend((Step("import torch", "done", "2.9.0"), *STEPS[1:]), WELL)
    diagnosis = judge(replace(LAPTOP, backend=backend))
    assert "is not usable here either: torch 2.9.0 is not of the releases it works with" in diagnosis.advice()


def test_torch_neuronx_of_a_laptop_is_the_last_of_its_worries() -> None:
    assert judge(LAPTOP).advice() == (
        "operating system: Darwin on arm64: torch-neuronx is for Linux on x86_64 only. Use a Trn2 or Trn3 instance. "
        "The emulated device needs none of this and is usable here: --device emulated."
    )


def test_the_driver_and_backend_of_a_machine_never_change_what_is_said_of_the_emulated_device() -> None:
    assert judge(HEALTHY).of(Topic.EMULATED) == judge(
        replace(HEALTHY, machine=replace(MACHINE, driver=None), neuron_ls=Tool(None))
    ).of(Topic.EMULATED)
