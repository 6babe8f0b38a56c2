"""What a run on the real device promises: on doubles of torch-neuronx here, and on the genuine one where there is one.

The doubles are written from public facts and are no evidence about Trainium (tests/doubles/README.md).
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable

import pytest
from running import Place, fallbacks, seen

from smoketest.findings import Report
from smoketest.findings.identity import functional_base
from smoketest.render import render

Places = Callable[[str], Place]

ON_EVERY = [
    "silent",
    "loud",
    "late",
    pytest.param("genuine", marks=pytest.mark.neuron),
]
SORT, LGAMMA = "x = torch.sort(x, dim=-1, stable=True).values", "x = x + torch.lgamma(x.abs() + 1)"
MAXIMUM = "parameter -= 1e-3 * torch.maximum(parameter.grad, parameter)"
GELU, SILU = "x = functional.gelu(self.inner(x))", "x = functional.silu(self.outer(x))"
FALLING_BACK = [
    # op, kind, phase, line, calls per step, exact, bytes per step
    ("aten::acos.out", "unimplemented", "setup", None, None, False, None),
    ("aten::digamma.out", "unimplemented", "backward", LGAMMA, 1, True, 64),
    ("aten::sort.values_stable", "unimplemented", "forward", SORT, 1, True, 128),
    ("aten::lgamma.out", "unimplemented", "forward", LGAMMA, 1, True, 64),
    ("aten::maximum.out", "unimplemented", "optimizer", MAXIMUM, 4, True, 480),
]
"""What the doubles make of the small model."""
RAW = """
import os, sys, json
sys.path.insert(0, {here!r})
os.environ["NEURON_LAUNCH_BLOCKING"] = "1"
import torch, torch_neuronx, small
torch.manual_seed(0)
model = small.make_model().to("neuron")
optimizer = small.make_optimizer(model.parameters())
names = set()
for step in range(2):
    batch = {{name: tensor.to("neuron") for name, tensor in small.make_batch(step).items()}}
    torch.neuron.synchronize()
    torch_neuronx.clear_op_tracking()
    small.loss_fn(model(**batch), batch).backward()
    optimizer.step()
    torch.neuron.synchronize()
    names |= set(torch_neuronx.get_fallback_ops())
print(json.dumps(sorted(names)))
"""


def terminal(report: Report) -> str:
    return " ".join(render(report, "terminal").split())


# ---------------------------------------------------------------- on every native release, doubles and the genuine one


@pytest.mark.parametrize("name", ON_EVERY)
def test_a_run_with_auto_takes_the_real_device_and_the_first_line_says_so(name: str, place: Places) -> None:
    report = place(name).report("auto")
    assert report.device.kind == "neuron"
    assert report.eager.status == "ran"
    assert terminal(report).startswith(
        f"{report.status.upper()} small on the neuron device (torch-neuronx {report.environment.torch_neuronx})"
    )
    assert all(step.loss is not None for step in report.eager.steps)


@pytest.mark.parametrize("name", ON_EVERY)
def test_variables_are_set_before_the_package_loads_and_recorded(name: str, place: Places) -> None:
    environment = place(name).report("auto").environment
    both = environment.settings | environment.set_by_run
    assert both["TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION"] == "1"
    assert {"NEURON_LAUNCH_BLOCKING", "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"} <= both.keys()
    assert {"Python", "torch-neuronx", "torch pair", "driver"} <= {line.topic for line in environment.lines}


@pytest.mark.parametrize("name", ON_EVERY)
def test_every_fallback_of_the_steady_step_has_phase_line_and_count(name: str, place: Places) -> None:
    for finding in fallbacks(place(name).report("auto")):
        if finding.message.startswith(("at setup", "in the warm-up only")):
            continue
        assert finding.grounds == "measured"
        assert finding.phase in ("forward", "backward", "optimizer")
        assert finding.site is not None, finding.op
        assert finding.site.file.endswith("small.py")
        assert (finding.calls_per_step or 0) > 0


@pytest.mark.parametrize("name", ["silent", pytest.param("genuine", marks=pytest.mark.neuron)])
def test_the_names_are_those_a_plain_script_reads_from_the_tracker(name: str, place: Places) -> None:
    """Without smoketest, as users do it: the same model, two steps, and what the tracker holds after each."""
    at = place(name)
    report = at.report("auto")
    if any(entry.what.startswith("fallbacks") for entry in report.not_checked):
        pytest.skip("this release has no tracker to compare with")
    from running import HERE

    raw = {functional_base(op) for op in json.loads(at.output(RAW.format(here=str(HERE))).splitlines()[-1])}
    told = {functional_base(f.op) for f in fallbacks(report) if f.op and not f.message.startswith("at setup")}
    assert told == raw


@pytest.mark.neuron
def test_the_genuine_package_has_every_undocumented_name_that_is_used(place: Places) -> None:
    """What is missing costs a witness: smoketest/devices/neuron_compat.py says which."""
    program = (
        "import torch\nfrom smoketest.devices.neuron_compat import missing\n"
        "print([(name.path, name.without) for name in missing()])"
    )
    assert place("genuine").output(program).splitlines()[-1] == "[]"


@pytest.mark.neuron
def test_the_doctor_finds_the_genuine_package_fit(place: Places) -> None:
    from smoketest.doctor import examine, render_text

    place("genuine")
    diagnosis = examine()
    assert diagnosis.exit_code == 0, render_text(diagnosis)


@pytest.mark.parametrize(
    "name", [pytest.param("silent", marks=pytest.mark.doubles), pytest.param("genuine", marks=pytest.mark.neuron)]
)
def test_an_exported_profile_predicts_what_was_measured(name: str, place: Places) -> None:
    """`smoketest operators export` on the machine, and the emulated device with that profile anywhere."""
    at = place(name)
    profile = at.folder / "profile.json"
    at.output(f"import sys; from smoketest.devices.export import main; sys.exit(main('neuron', {str(profile)!r}))")
    predicted = at.report("emulated", more=f"profile: {profile}")
    assert predicted.device.profile == f"torch-neuronx-{at.report('auto').environment.torch_neuronx}"
    assert {f.op for f in fallbacks(predicted)} == {f.op for f in fallbacks(at.report("auto"))}
    ids = {f.id for f in fallbacks(predicted)}
    assert ids <= {f.id for f in fallbacks(at.report("auto"))}, "the step from predicted to measured keeps the ids"


# ---------------------------------------------------------------- on doubles: the right values, exactly


def test_kinds_counts_phases_and_lines_of_a_silent_device(place: Places) -> None:
    report = place("silent").report("auto")
    assert sorted(seen(report), key=str) == sorted(FALLING_BACK, key=str)
    for finding in fallbacks(report):
        counted = {"dispatch"} if finding.phase != "setup" else set()
        assert set(finding.witnesses) == {"registry", "tracker"} | counted
        assert finding.message.startswith("at setup only: ") == (finding.phase == "setup")
    waits = [finding for finding in report.findings if finding.rule == "NST103"]
    assert [(f.phase, f.site.code if f.site else None) for f in waits] == [
        ("forward", "return x * x.detach().sum().item()")
    ]
    assert (report.status, report.exit_code, report.headline) == ("fail", 1, "4 fallbacks deny, 2 warnings")


@pytest.mark.parametrize("name", ["loud", "late"])
def test_a_loud_device_and_an_asynchronous_one_give_exactly_what_the_silent_one_gives(name: str, place: Places) -> None:
    def told(report: Report) -> list[dict[str, object]]:
        return [finding.model_dump(exclude={"witnesses", "ms_per_step"}) for finding in report.findings]

    silent, other = place("silent").report("auto"), place(name).report("auto")
    assert told(other) == told(silent)
    assert other.operators == silent.operators
    heard = {"warnings"} if name == "loud" else set()
    for finding, same in zip(fallbacks(other), fallbacks(silent), strict=True):
        assert set(finding.witnesses) == {*same.witnesses} | heard


def test_a_missing_tracker_makes_everything_unknown_and_nothing_clean(place: Places) -> None:
    report = place("trackerless").report()
    assert fallbacks(report) == []
    assert (report.status, report.exit_code) == ("error", 1)
    assert report.headline.startswith("unknown: fallbacks were not checked (this torch-neuronx has no op tracker")
    assert {row.eager for row in report.operators} == {"unknown"}
    assert "fallbacks the device does not warn about" in [entry.what for entry in report.not_checked]
    said = terminal(report)
    assert "This device does not tell where ops ran" in said
    assert "clean" not in said
    assert [step.compiling for step in report.eager.steps] == [None] * 3, "it does not count compilations either"


def test_kernels_that_fail_are_told_from_ops_without_one(place: Places) -> None:
    """A development build, whose defaults would raise: one kernel fails in the call, one in the compiler's process."""
    report = place("fails").report()
    recovered = [
        ("aten::gelu", "recovered", "forward", GELU, 1, True, 64),
        ("aten::silu", "recovered", "forward", SILU, 1, True, 64),
    ]
    assert sorted(seen(report), key=str) == sorted([*FALLING_BACK, *recovered], key=str)
    assert report.environment.set_by_run["TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS"] == "0"
    log = (place("fails").folder / "neuron" / "small" / "log" / "eager.log").read_text()
    assert "[NCC_EVRF029]" in log
    assert [step.compiling for step in report.eager.steps] == [True, False, False], "each kernel is compiled once"
    assert "The device compiled in step 1 (warmup, " in " ".join(render(report, "markdown").split())


def test_the_older_product_is_named_and_never_loaded(place: Places) -> None:
    at = place("legacy")
    report = at.report()
    assert report.exit_code == 3
    assert report.headline.startswith("torch-neuronx 2.9.0.2.15.32035 is not a native release")
    assert [(f.rule, f.verdict) for f in report.findings][:1] == [("NST301", "deny")]
    assert "is the older XLA-based product of the same name" in report.findings[0].message
    assert "in a fresh environment of Python 3.12 to 3.14" in (report.findings[0].remedy or "")
    assert at.double is not None
    assert not (at.double.folder / "torch_neuronx" / "loaded").exists()


# ---------------------------------------------------------------- the rest of the doubles: make doubles


@pytest.mark.doubles
def test_only_warnings_tell_of_fallbacks_where_there_is_no_tracker(place: Places) -> None:
    report = place("loud_trackerless").report()
    assert {(f.op, f.kind, f.site) for f in fallbacks(report)} == {
        (op, "unimplemented", None) for op, *_ in FALLING_BACK
    }
    assert all(f.witnesses == ("registry", "warnings") for f in fallbacks(report))
    assert {row.eager for row in report.operators} == {"unknown"}
    assert report.status != "pass"


@pytest.mark.doubles
def test_a_tracker_that_records_nothing_is_found_out_and_makes_nothing_clean(place: Places) -> None:
    report = place("deaf").report()
    assert fallbacks(report) == []
    assert (report.status, report.exit_code) == ("error", 1)
    assert "(the op tracker of this torch-neuronx missed an op that it has no kernel for" in report.headline
    assert {row.eager for row in report.operators} == {"unknown"}


@pytest.mark.doubles
def test_the_user_s_strict_variable_is_respected_and_told(place: Places) -> None:
    """What would have fallen back raises then, and the report says which variable is to blame."""
    strict = {"TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "1"}
    made = place("fails")
    at = Place(made.folder / "strict", {**made.environ, **strict}, made.double)
    at.folder.mkdir()
    report = at.report()
    (raised,) = (f for f in report.findings if f.rule == "NST104")
    assert (raised.op, raised.phase, raised.site and raised.site.code) == ("aten::gelu", "forward", GELU)
    assert "CPU fallback disabled because TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1" in raised.message
    (setting,) = (f for f in report.findings if f.rule == "NST304")
    assert setting.message.startswith("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1: an op that has a kernel")
    assert setting.verdict == "warn"
    assert report.environment.settings == strict
    assert "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS" not in report.environment.set_by_run


@pytest.mark.doubles
def test_a_kernel_that_fails_late_is_recovered_in_the_call_it_belongs_to(place: Places) -> None:
    report = place("fails_late").report()
    late = ("aten::gelu", "recovered", "forward", GELU, 1, True, 64)
    assert sorted(seen(report), key=str) == sorted([*FALLING_BACK, late], key=str)


@pytest.mark.doubles
def test_an_error_that_comes_late_is_pinned_to_its_step_and_phase_and_to_no_line(place: Places) -> None:
    report = place("loses").report()
    (finding,) = (f for f in report.findings if f.rule == "NST104")
    assert (finding.op, finding.phase, finding.site) == ("aten::gelu", "forward", None)
    assert report.eager.reason is not None
    assert report.eager.reason.startswith("aten::gelu raised in step 1 of 3 (warmup), forward: RuntimeError: NRT Exec")
    assert (report.status, report.exit_code) == ("fail", 1)


@pytest.mark.doubles
def test_a_step_that_compiles_is_told_from_steady_ones(place: Places) -> None:
    report = place("slow").report()
    first, second, _ = report.eager.steps
    assert (first.compiling, second.compiling) == (True, False)
    assert (first.forward_ms or 0) > 2000 > (second.forward_ms or 0)


@pytest.mark.doubles
@pytest.mark.parametrize(
    ("name", "message", "rule"),
    [
        ("absent", "torch-neuronx 2.1{minor}.3.0.0 finds no Neuron device", "NST303"),
        ("hangs", "the Neuron device did not answer its first use within 8 s", "NST303"),
        ("dies", "the Neuron device cannot be used: the eager worker crashed with SIGSEGV at its first use", "NST303"),
        ("placeholder", "torch-neuronx 1.0 is PyPI's empty placeholder, not the backend", "NST301"),
        ("lookalike", "torch-neuronx is not installed", "NST301"),
    ],
)
def test_a_device_that_cannot_be_used_ends_in_exit_3_with_its_cause(
    name: str, message: str, rule: str, place: Places
) -> None:
    started = time.monotonic()
    report = place(name).report(seconds=8)
    assert time.monotonic() - started < 60
    assert (report.exit_code, report.status) == (3, "error")
    assert report.headline == message.format(minor=(report.environment.torch or "2.13").split(".")[1][-1])
    assert [f.rule for f in report.findings][:1] == [rule]
    assert report.eager.steps == ()


@pytest.mark.doubles
def test_a_busy_device_is_said_to_be_busy(place: Places) -> None:
    at = place("development")
    assert at.double is not None
    with at.double.core.open("w") as core:
        fcntl.flock(core, fcntl.LOCK_EX)
        report = at.report()
    assert report.exit_code == 3
    assert report.headline.startswith("the Neuron cores are busy: Logical Neuron Core(s) not available")
    assert [f.rule for f in report.findings] == ["NST303"]


@pytest.mark.doubles
@pytest.mark.parametrize(("name", "why"), [("absent", "finds no Neuron device"), ("legacy", "is not a native release")])
def test_with_auto_the_same_check_goes_on_with_the_emulated_device_and_says_why(
    name: str, why: str, place: Places
) -> None:
    report = place(name).report("auto")
    assert report.device.kind == "emulated"
    assert terminal(report).startswith("FAIL small on the emulated neuron device (operator profile ")
    (entry,) = (entry for entry in report.not_checked if entry.what == "the real device")
    assert why in entry.why
    assert {op for op, *_ in seen(report)} == {op for op, *_ in FALLING_BACK}
    assert not [f for f in report.findings if f.class_ == "environment"]
