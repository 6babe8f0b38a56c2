"""The private PyTorch API of the probe still says what we take from it. A failure here means: mend compat.py."""

from __future__ import annotations

import functools
import json
import types
from pathlib import Path

import torch
import torch._dynamo
from torch._dynamo import trace_rules
from torch._dynamo import utils as dynamo_utils

from smoketest.probe import compat

HERE = str(Path(__file__).resolve())


def breaks_in_the_middle(x: torch.Tensor) -> torch.Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return x * 2


def is_skipped(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        if x.sum() > 0:
            x = x + 1
    return x


def is_recompiled(x: torch.Tensor) -> torch.Tensor:
    return x * 3


def line_of(function: object) -> int:
    return function.__code__.co_firstlineno  # type: ignore[attr-defined,no-any-return]


def test_graph_breaks_come_with_reason_and_frames() -> None:
    with compat.fresh_dynamo():
        torch.compile(breaks_in_the_middle, backend="eager", dynamic=False)(torch.ones(2))
        records = compat.break_records()
    assert len(records) == 1
    assert "graph_break" in records[0].reason
    assert records[0].frames[0] == (HERE, line_of(breaks_in_the_middle) + 2)


def test_a_skipped_frame_leaves_a_record_with_an_error_and_no_break() -> None:
    with compat.fresh_dynamo():
        torch.compile(is_skipped, backend="eager", dynamic=False)(torch.ones(2))
        assert compat.break_records() == ()
        (record,) = [frame for frame in compat.frame_records() if frame.name == "is_skipped"]
    assert record.error is not None
    assert record.error_place == (HERE, line_of(is_skipped) + 2)


def test_every_frame_is_recorded_however_many_there_are() -> None:
    before = dynamo_utils._compilation_metrics.maxlen
    assert before == 64
    with compat.fresh_dynamo():
        for number in range(70):
            code = is_recompiled.__code__.replace(co_name=f"f{number}", co_qualname=f"f{number}")
            torch.compile(types.FunctionType(code, globals()), backend="eager", dynamic=False)(torch.ones(2))
        names = [frame.name for frame in compat.frame_records()]
    assert names == [f"f{number}" for number in range(70)]
    assert dynamo_utils._compilation_metrics.maxlen == before


def test_what_an_op_raises_has_the_ids_of_the_registry() -> None:
    registry = json.loads((Path(torch._dynamo.__file__).parent / "graph_break_registry.json").read_text())
    titles = {number: registry[number][0]["Gb_type"] for number in ("GB5173", "GB0112", "GB4315")}
    assert titles == {
        "GB5173": "Tensor device mismatch",
        "GB0112": "TypeError when making fake tensor call",
        "GB4315": "RuntimeError when making fake tensor call",
    }


def test_a_recompile_says_what_had_changed() -> None:
    with compat.fresh_dynamo():
        compiled = torch.compile(is_recompiled, backend="eager", dynamic=False)
        compiled(torch.ones(2))
        compiled(torch.ones(3))
        first, second = compat.frame_records()
    assert first.recompile_reason is None
    assert second.recompile_reason == "tensor 'x' size mismatch at index 0. expected 2, actual 3"


def test_settings_and_memory_of_dynamo_are_put_back() -> None:
    before = (torch._dynamo.config.automatic_dynamic_shapes, list(trace_rules.SKIP_DIRS))
    with compat.fresh_dynamo(), compat.kept_out_of_dynamo("smoketest"):
        assert torch._dynamo.config.automatic_dynamic_shapes is False
        assert len(trace_rules.SKIP_DIRS) == len(before[1]) + 1
        torch.compile(is_recompiled, backend="eager")(torch.ones(2))
    assert (torch._dynamo.config.automatic_dynamic_shapes, list(trace_rules.SKIP_DIRS)) == before
    assert compat.frame_records() == ()


def test_a_node_of_a_backward_graph_has_the_stack_of_its_forward_line() -> None:
    seen = []

    def note(graph: torch.fx.GraphModule, inputs: object) -> object:
        seen.append(graph)
        return compat.boxed(graph, lambda _: None)

    with compat.fresh_dynamo():
        compiled = torch.compile(is_recompiled, backend=compat.aot_backend(note, note, {}), dynamic=False)
        compiled(torch.ones(2, requires_grad=True)).sum().backward()
    backward = [node for node in seen[1].graph.nodes if node.op == "call_function"]
    assert len(seen) == 2
    assert all("is_recompiled" in node.meta["stack_trace"] for node in backward)
    assert {str(node.meta["original_aten"]) for node in backward} == {"aten.mul.Tensor"}


def cannot_be_resumed(x: torch.Tensor) -> torch.Tensor:
    x = (x + 1).relu()
    x = x * 2
    try:
        torch._dynamo.graph_break()
    finally:
        x = x + 1
    return x


def test_a_break_that_dynamo_cannot_go_on_after_keeps_the_reason_it_logs() -> None:
    with compat.fresh_dynamo():
        torch.compile(cannot_be_resumed, backend="eager", dynamic=False)(torch.ones(2))
        (record,) = compat.break_records()
    assert record.rest_skipped
    assert "graph_break" in record.reason
    assert (HERE, line_of(cannot_be_resumed) + 4) in record.frames


def test_pytorchs_core_decompositions_are_a_table_by_overload() -> None:
    table = compat.core_decompositions()
    assert torch.ops.aten.native_group_norm_backward.default in table
    assert torch.ops.aten.mm.default not in table


@functools.lru_cache
def doubled(x: int) -> int:
    return 2 * x


def calls_a_cached_function(x: torch.Tensor) -> torch.Tensor:
    return x * doubled(3)


def test_where_warnings_are_errors_dynamos_own_skip_no_frame() -> None:
    with compat.fresh_dynamo():
        torch.compile(calls_a_cached_function, backend="eager", dynamic=False)(torch.ones(2))
        assert [frame.error for frame in compat.frame_records()] == [None]


def test_the_modules_that_run_are_known_with_what_they_were_given() -> None:
    seen: list[tuple[torch.nn.Module, tuple[object, ...]]] = []

    class Inner(torch.nn.Module):
        def forward(self, x: int, y: int) -> int:
            seen.extend((module, args) for module, args, _ in compat.running_modules())
            return x + y

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: int) -> int:
            return self.inner(x, 2)

    outer = Outer()
    outer(1)
    assert seen == [(outer.inner, (1, 2)), (outer, (1,))]
