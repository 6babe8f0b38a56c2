"""`smoketest explain OP`: what is said of an op, and that nothing is said that is not known."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from smoketest.cli import explain_op as module
from smoketest.cli.explain_op import explain_op, near_ops, op_name
from smoketest.findings.remedies import _SAME, ADVICE, REWRITES
from smoketest.operators.evidence import cannot_lower, reports
from smoketest.operators.profile import load_profile

PROFILES = [load_profile()]
NAME = PROFILES[0].name


def explained(op: str, width: int = 1000) -> str:
    text = explain_op(op_name(op), PROFILES, width=width)
    assert text is not None
    return text


def section(text: str, heading: str) -> list[str]:
    lines = text.split(f"\n\n{heading}\n")[1].split("\n\n")[0].splitlines()
    return [line.strip() for line in lines]


@pytest.mark.parametrize(("typed", "op"), [
    ("aten::sort", "aten::sort"),
    ("aten::sort.values_stable", "aten::sort"),
    ("sort", "aten::sort"),
    ("torch.sort", "aten::sort"),
    ("torch.ops.aten.sort.stable", "aten::sort"),
    ("aten.index_fill_.int_Scalar", "aten::index_fill"),
    ("uniform_", "aten::uniform"),
    ("mylib::op", "mylib::op"),
])  # fmt: skip
def test_an_op_may_be_named_in_any_of_its_forms(typed: str, op: str) -> None:
    assert op_name(typed) == op


def test_sort_has_no_kernel_was_reported_and_has_a_rewrite() -> None:
    text = explained("aten::sort")
    assert text.startswith("aten::sort\n")
    assert section(text, "Kernel on the device")[:2] == [
        f"{NAME} (read from a pre-release, 2026-04, PyTorch 2.10):", "has none for aten::sort.values_stable",
    ]  # fmt: skip
    assert section(text, "Lowering under torch.compile")[0].startswith("Not known;")
    assert section(text, "Reported from real devices") == [
        "aten::sort.values_stable ran on the CPU under torch-neuronx 2.11.3"
        " (github.com/Pidem/equiformer-trainium experiment_summary.html; USER-B3)"
    ]
    assert section(text, "What a finding of it is worth") == [
        f"aten::sort.values_stable: predicted fallback, seen on a real device: denied by default (NST101, {NAME})."
    ]
    assert section(text, "Instead")[0] == REWRITES["sort"]


def test_an_op_in_the_table_of_the_sweep_is_said_not_to_lower() -> None:
    assert section(explained("aten::lgamma"), "Lowering under torch.compile") == [
        "It does not lower: after the backend's and PyTorch's core decompositions, the public torch-mlir does not know"
        " torch.aten.lgamma."
    ]
    assert "no kernel known and no lowering: denied by default" in explained("aten::lgamma")


def test_without_the_table_nothing_is_said_of_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cannot_lower", dict)
    assert section(explained("aten::lgamma"), "Lowering under torch.compile") == [
        "Not known: there is no table of ops that cannot be lowered. The compile probe of a check tells it."
    ]


def test_that_an_op_is_not_in_the_table_is_not_called_lowering() -> None:
    lowering = section(explained("aten::mm"), "Lowering under torch.compile")
    assert lowering[0].startswith(f"Not known; it is not among the {len(cannot_lower())} ops")
    assert lowering[1].startswith("Known to be refused: aten::mm / aten::bmm / aten::matmul with mixed input dtypes")


def test_a_kernel_and_a_report_against_it_are_both_told() -> None:
    text = explained("aten::index_add")
    assert "has a kernel for aten::index_add, aten::index_add.out, aten::index_add_" in text
    assert "aten::index_add ran on the CPU under torch-neuronx beta, not stated" in text
    assert f"No fallback is predicted with {NAME}, whatever was reported: it lists a kernel." in text
    assert "The backend takes aten::index_add apart first (inherited decomposition;" in text


def test_failures_to_compile_that_were_reported_are_told() -> None:
    assert section(explained("aten::_fft_c2r"), "Reported from real devices") == [
        "failed to compile under torch-neuronx 2.11.3.0.1278: complex dtypes are not supported natively on Neuron"
        " [NCC_EVRF004] (github.com/canallee/native-torch-autoporting-trainium knowledge base; USER-B3)"
    ]
    assert len(section(explained("aten::index_add"), "Reported from real devices")) == 2


def test_lowering_is_told_by_the_reports_that_findings_are_denied_by() -> None:
    assert section(explained("aten::_fft_c2r"), "Lowering under torch.compile") == [
        "It fails where the public torch-mlir refuses it: so it did on a real device (below). A finding of that is"
        " denied by default."
    ]
    assert (
        'It fails where the public torch-mlir refuses it with "failed to legalize operation'
        in section(explained("aten::index_add"), "Lowering under torch.compile")[0]
    )


def test_a_composite_is_told_by_the_ops_that_it_becomes() -> None:
    text = explained("aten::lstm")
    assert section(text, "Lowering under torch.compile")[0].startswith("It is a composite: torch.compile captures")
    assert section(text, "What a finding of it is worth")[0] == (
        "As aten::_thnn_fused_lstm_cell: predicted op failure: there is no kernel for the CPU either, so it cannot fall"
        f" back: denied by default (NST104, {NAME})."
    )
    stft = section(explained("aten::fft_rfft"), "Lowering under torch.compile")
    assert stft[0].startswith("It is a composite")


def test_what_the_backend_takes_apart_is_not_called_unknown() -> None:
    assert section(explained("aten::topk"), "Lowering under torch.compile")[:2] == [
        "It lowers where the ops do that the backend makes of it.",
        f"The backend takes aten::topk apart first (custom decomposition; {NAME}).",
    ]


def test_with_a_profile_that_lists_a_kernel_an_op_of_the_table_is_a_warning() -> None:
    registered = PROFILES[0].registered_by | {"aten::lgamma": "a newer release"}
    newer = PROFILES[0].model_copy(update={"registered_by": registered, "name": "newer"})
    text = explain_op("aten::lgamma", [*PROFILES, newer], width=1000)
    assert text is not None
    assert "newer lists a kernel for aten::lgamma, so a release may lower it" in text


def test_a_name_that_only_people_use_leads_to_the_ops_it_becomes() -> None:
    text = explained("batch_norm")
    kernel = section(text, "Kernel on the device")[1]
    assert kernel.startswith("does not name it. A composite: PyTorch computes it with other ops,")
    assert "aten::native_batch_norm" in kernel
    assert "cudnn" not in kernel
    assert f"Nothing is predicted of it under this name with {NAME}." in text


def test_a_warned_fallback_is_called_possible() -> None:
    assert section(explained("aten::maximum"), "What a finding of it is worth") == [
        "aten::maximum.out: possible fallback, a newer release may have a kernel: a warning by default"
        f" (NST101, {NAME})."
    ]


@pytest.mark.parametrize("op", sorted({*REWRITES, *ADVICE, *(name for names in _SAME.values() for name in names)}))
def test_every_op_with_a_remedy_is_explained_with_it(op: str) -> None:
    remedy = section(explained(op), "Instead")
    assert remedy[0] == (REWRITES | ADVICE).get(op, remedy[0])
    assert not remedy[0].startswith("No remedy")
    assert (len(remedy) == 2) == (op in REWRITES)


@pytest.mark.parametrize("op", sorted({*reports(), *cannot_lower()}))
def test_every_op_of_the_evidence_is_explained(op: str) -> None:
    assert explained(op).startswith(f"{op}\n")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_asked(width: int) -> None:
    for op in ("sort", "lgamma", "mm", "native_batch_norm", "add", "lstm", "gru", "grid_sampler_2d"):
        # Source to be copied is not wrapped, and fits into 80 columns.
        text = explained(op, width)
        text = text if width >= 80 else text.partition("Whole code")[0]
        assert max(map(len, text.splitlines())) <= width


def test_nothing_is_said_of_an_op_that_nothing_is_known_of() -> None:
    assert explain_op("aten::foo_bar_baz", PROFILES) is None
    assert explain_op("mylib::sort", PROFILES) is None
    assert near_ops("aten::cdist", PROFILES)[:1] == ["aten::_cdist_forward"]


@pytest.mark.parametrize("op", ["pixel_shuffle", "affine_grid_generator", "conv2d", "einsum"])
def test_a_composite_is_called_one(op: str) -> None:
    assert "A composite: PyTorch computes it with other ops" in section(explained(op), "Kernel on the device")[1]


@pytest.mark.parametrize("op", ["add", "gather", "cumsum"])
def test_of_an_op_with_nothing_to_do_about_it_there_is_no_advice(op: str) -> None:
    text = explained(op)
    assert f"No fallback is predicted with {NAME}" in text
    assert "\nInstead\n" not in text
    assert "Nothing that this version knows of" not in text


def smoketest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smoketest", "explain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_as_typed_it_prints_80_columns_on_stdout() -> None:
    done = smoketest("torch.sort")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == explain_op("aten::sort", PROFILES, width=80)


def test_an_unknown_op_ends_in_exit_2_with_ops_of_a_like_name() -> None:
    done = smoketest("cdst")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: PyTorch has no op aten::cdst\n  hint: ")
    done = smoketest("\x1b[31m")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr


def test_another_profile_is_looked_in_too(tmp_path: Path) -> None:
    packaged = resources.files("smoketest.operators") / "data" / f"{NAME}.json"
    data = json.loads(packaged.read_text(encoding="utf-8"))
    data["name"] = "mine"
    data["native"]["aten::sort.values_stable"] = "cpp"
    data["unimplemented"].remove("aten::sort.values_stable")
    (tmp_path / "mine.json").write_text(json.dumps(data))
    done = smoketest("sort", "--profile", str(tmp_path / "mine.json"))
    assert done.returncode == 0, done.stderr
    assert (
        "  mine (read from a pre-release, 2026-04, PyTorch 2.10):\n    has a kernel for aten::sort.values_stable"
    ) in done.stdout
    assert "No fallback is predicted with mine" in done.stdout
    assert smoketest("sort", "--profile", str(tmp_path / "none.json")).returncode == 2
