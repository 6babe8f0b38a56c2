"""Tests that are watched, and checks as test items, alone and spread by pytest-xdist."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin_projects import Ran, project, pytest_in

WATCHED = """\
import pytest
import torch


def gamma(size=4):
    x = torch.ones(size).to("neuron").requires_grad_()
    torch.lgamma(x).sum().backward()


def test_plain():
    torch.ones(2, requires_grad=True).sum().backward()


def test_clean(neuron_watch):
    with neuron_watch() as seen:
        torch.ones(4).to("neuron") + 1
    assert seen.clean


def test_denied(neuron_watch):
    with neuron_watch(allow=["aten::lgamma*"]):
        gamma()


def test_allowed(neuron_watch):
    with neuron_watch(allow=["aten::lgamma*", {"op": "aten::digamma*", "max_calls_per_step": 1}]):
        gamma()


def test_over_its_budget(neuron_watch):
    with neuron_watch(allow=["aten::lgamma*", {"op": "aten::digamma*", "max_calls_per_step": 0}]):
        gamma()


def test_possible(neuron_watch):
    with neuron_watch():
        torch.nn.functional.max_pool2d(torch.ones(1, 1, 4, 4).to("neuron"), 2)


def test_possible_and_strict(neuron_watch):
    with neuron_watch(strict=True):
        torch.nn.functional.max_pool2d(torch.ones(1, 1, 4, 4).to("neuron"), 2)


def test_raises(neuron_watch):
    with neuron_watch():
        gamma()
        raise KeyError("its own error")


def test_nothing_moved(neuron_watch):
    with neuron_watch():
        torch.ones(4).lgamma()


def test_misspelt(neuron_watch):
    with neuron_watch(allow=[{"operator": "aten::lgamma"}]):
        gamma()


@pytest.mark.no_cpu_fallback
def test_marked():
    gamma()


@pytest.mark.no_cpu_fallback(allow=["aten::lgamma*"])
class TestMarked:
    def test_denied(self):
        gamma()

    @pytest.mark.no_cpu_fallback(allow=["aten::digamma*"])
    def test_allowed(self):
        gamma()
"""


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return pytest_in(project(tmp_path_factory.mktemp("watched"), {"test_watched.py": WATCHED}))


def test_a_fallback_that_is_denied_fails_the_test_and_one_that_is_allowed_does_not(watched: Ran) -> None:
    assert watched.code == 1, watched.text
    assert {name.removeprefix("test_watched"): outcome for name, outcome in watched.outcomes.items()} == {
        "::test_plain": "passed",
        "::test_clean": "passed",
        "::test_denied": "failure",
        "::test_allowed": "passed",
        "::test_over_its_budget": "failure",
        "::test_possible": "passed",
        "::test_possible_and_strict": "failure",
        "::test_raises": "failure",
        "::test_nothing_moved": "failure",
        "::test_misspelt": "failure",
        "::test_marked": "failure",
        ".TestMarked::test_denied": "failure",
        ".TestMarked::test_allowed": "passed",
    }


def test_the_failure_is_the_report_s_rows(watched: Ran) -> None:
    assert (
        "1 fallback denies, no warnings, 1 allowed\n"
        "aten::digamma.out: predicted fallback in backward (NST101)\n"
        "  test_watched.py:7 torch.lgamma(x).sum().backward()\n"
        "  1 call per step, 32 B per step to and from the host\n"
    ) in watched.out
    assert "  instead: For x > 0 use its series" in watched.out
    assert "Allowed up to 0 calls per step, but there are 1: 1 too many." in watched.out
    assert "FAILED test_watched.py::test_denied - Failed: 1 fallback denies, " in watched.out


def test_possible_fallbacks_are_told_beside_a_test_that_passes(watched: Ran) -> None:
    passes = watched.out.partition(" PASSES ")[2]
    section = passes.partition("test_possible")[2]
    assert "aten::max_pool2d_with_indices.out: possible fallback in forward (NST101)" in section


def test_the_test_s_own_exception_is_told_and_not_hidden(watched: Ran) -> None:
    assert "KeyError: 'its own error'" in watched.out


def test_a_block_that_does_not_touch_the_device_is_not_called_clean(watched: Ran) -> None:
    assert "unknown whether ops fell back: nothing ran on the device: are model and inputs moved to it?" in watched.out


def test_a_misspelt_allowance_is_named(watched: Ran) -> None:
    assert "allow=[{'operator': 'aten::lgamma'}]: operator: Extra inputs are not permitted" in watched.out


WORKLOAD = """\
import torch


class Net(torch.nn.Linear):
    def forward(self, x):
        return torch.lgamma(super().forward(x).tanh() + 2)


def make_model():
    return Net(4, 4)


def make_batch(step):
    return {"input": torch.ones(2, 4)}


def loss_fn(output, batch):
    return output.sum()
"""
SWITCHED_OFF = "compile: {enabled: false}\nparity: {enabled: false}\n"
INI = 'smoketest_checks = ["configs/*.yaml"]\nsmoketest_device = "emulated"\nsmoketest_output = "kept"'


def test_a_check_that_fails_reads_like_its_report_and_leaves_it(tmp_path: Path) -> None:
    check = f"workload: net.py\ntraining: {{steps: 1, warmup: 0}}\n{SWITCHED_OFF}"
    folder = project(tmp_path, {"configs/net.py": WORKLOAD, "configs/deny.yaml": check}, INI)
    done = pytest_in(folder)
    assert done.outcomes == {"configs.deny.yaml::eager": "failure"}, done.text
    assert "smoketest: checks configs/*.yaml, device emulated" in done.out
    assert "FAILED configs/deny.yaml::eager - 2 fallbacks deny, no warnings" in done.out
    assert "  aten::lgamma.out  predicted fallback (NST101, does not lower either)" in done.out
    assert "    configs/net.py:6, forward: return torch.lgamma(super().forward(x).tanh() + 2)" in done.out
    assert "smoketest/pytest_plugin.py" not in done.out  # no frames of ours
    assert (folder / "kept" / "eager" / "deny" / "report.md").exists()


def test_xdist_spreads_checks_and_their_outcomes_are_the_same_as_without(tmp_path: Path) -> None:
    """Of checks whose time is up at once, which takes no torch; `make shipped` does it with the shipped ones."""
    checks = {f"configs/{name}.yaml": f"workload: net.py\ntraining: {{timeout: 0.1}}\n{SWITCHED_OFF}" for name in "ab"}
    files = {"configs/net.py": WORKLOAD, "test_other.py": "def test_other(): pass\n", **checks}
    folder = project(tmp_path, files, INI)
    alone, spread = pytest_in(folder), pytest_in(folder, "-n", "2")
    expected = {
        "configs.a.yaml::eager": "failure", "configs.b.yaml::eager": "failure", "test_other::test_other": "passed",
    }  # fmt: skip
    assert alone.outcomes == spread.outcomes == expected, spread.text
    for done in (alone, spread):
        assert done.code == 1
        assert "FAILED configs/b.yaml::eager - the eager part took longer than 0.1 s" in done.out
