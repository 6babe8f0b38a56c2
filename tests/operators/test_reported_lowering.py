"""Lowering failures seen on devices are data, each with who saw it."""

from __future__ import annotations

from pathlib import Path

from smoketest.findings import SitePolicy
from smoketest.operators.reported_lowering import lowering_reports, reported_lowering
from smoketest.probe import observe
from smoketest.probe.capture import CapturedGraph
from smoketest.probe.graphs import GraphSpec
from smoketest.probe.lowering_worker import Answer


def test_every_report_names_an_op_or_what_the_compiler_says() -> None:
    assert all(report.op or report.sentence for report in lowering_reports())
    assert all(report.source and report.release and report.said for report in lowering_reports())


def test_an_op_is_found_by_its_base_name_whatever_the_compiler_says() -> None:
    report = reported_lowering("aten::_prelu_kernel", "anything")
    assert report is not None
    assert (report.grade, report.release) == ("USER-B3", "2.11.3.0.1417")


def test_a_report_of_a_sentence_holds_for_any_op_and_for_that_sentence_only() -> None:
    report = reported_lowering("aten::mm", "matmul: input datatypes mismatched; failed to perform it")
    assert report is not None
    assert report.source == "a port of Boltz-2"
    assert reported_lowering("aten::mm", "failed to legalize operation 'torch.aten.mm'") is None
    assert reported_lowering("aten::diagonal", "failed to legalize operation 'torch.constant.int'") is None
    assert reported_lowering("aten::index_add", "failed to legalize operation 'torch.constant.int'") is not None


def test_a_graph_refused_in_words_that_users_saw_on_the_device_is_denied() -> None:
    graph = CapturedGraph("0.forward", "forward", GraphSpec(()), {})
    mixed = observe.graph_refused(
        graph, Answer("imported", "matmul: input datatypes mismatched"), 0, SitePolicy(Path())
    )
    assert mixed.grounds == "reported"
    assert mixed.message == (
        "the forward graph 0.forward does not lower as a whole, although each of its ops lowers alone (reported by a "
        "port of Boltz-2 for torch-neuronx of 2026: matmul: input datatypes mismatched; failed to legalize "
        "operation 'torch.aten.mm'). torch-mlir: matmul: input datatypes mismatched"
    )
    other = observe.graph_refused(graph, Answer("imported", "something else"), 0, SitePolicy(Path()))
    assert other.grounds is None
