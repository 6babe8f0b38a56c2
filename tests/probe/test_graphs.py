"""Graphs as data: one op cut out, equal calls found equal, bodies put in place of nodes."""

from __future__ import annotations

import pickle

import torch

from smoketest.probe.from_fx import graph_spec
from smoketest.probe.graphs import (
    GraphSpec,
    NodeSpec,
    Ref,
    Symbolic,
    TensorSpec,
    cut_out,
    gives_nothing,
    inline,
    one_op,
    signature,
)
from smoketest.probe.prepare import expanded, lowerable

from .build import op

F, INT = torch.float32, torch.int64
X = TensorSpec((3, 5), F)


def test_dtypes_and_shapes_are_written_short() -> None:
    specs = [X, TensorSpec((), torch.bool), TensorSpec((2,), torch.bfloat16), TensorSpec((4, 4), torch.int64)]
    assert [str(spec) for spec in specs] == ["f32[3, 5]", "bool[]", "bf16[2]", "i64[4, 4]"]


def test_a_graph_of_torch_fx_becomes_data_without_values() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.add.Tensor(x, x, alpha=2)

    traced = torch.fx.symbolic_trace(f)
    fake = torch._subclasses.FakeTensorMode()
    for node in traced.graph.nodes:
        node.meta["val"] = fake.from_tensor(torch.empty(3, 5))
    spec = graph_spec(traced.graph)
    assert [node.target for node in spec.nodes] == ["placeholder", "aten::add.Tensor", "output"]
    assert spec.nodes[1].args == (Ref("x"), Ref("x"))
    assert spec.nodes[1].kwargs == (("alpha", 2),)
    assert spec.nodes[1].value == X


def test_a_scalar_of_another_type_is_another_op() -> None:
    calls = [op("aten::mul.Scalar", X, scalar, value=X) for scalar in (1, 1.0, True, 1)]
    assert len({signature(call) for call in calls}) == 3


def test_a_graph_survives_pickling() -> None:
    graph = op("aten::mul.Scalar", X, 2, value=X)
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert again.by_name["op"].target == "aten::mul.Scalar"


def test_an_op_cut_out_shares_the_input_it_takes_twice() -> None:
    call = NodeSpec("y", "aten::mul.Tensor", (Ref("x"), Ref("x")), value=X)
    graph = GraphSpec((NodeSpec("x", "placeholder", value=X), call))
    assert [node.target for node in one_op(graph, call).nodes] == ["placeholder", "aten::mul.Tensor", "output"]


def test_a_body_takes_the_place_of_a_node_with_several_results() -> None:
    sort = op("aten::sort", X, value=(X, TensorSpec((3, 5), INT)))
    body = GraphSpec(
        (
            NodeSpec("a", "placeholder", value=X),
            NodeSpec("u", "aten::neg", (Ref("a"),), value=X),
            NodeSpec("v", "aten::argsort", (Ref("a"),), value=TensorSpec((3, 5), INT)),
            NodeSpec("output", "output", ((Ref("u"), Ref("v")),)),
        )
    )
    whole = inline(sort, {"op": body})
    assert [node.name for node in whole.nodes] == ["arg0", "op__u", "op__v", "output"]
    assert whole.nodes[1].args == (Ref("arg0"),)
    assert whole.nodes[-1].args == ((Ref("op__u"), Ref("op__v")),)


def test_the_end_of_a_slice_becomes_the_size() -> None:
    cut = lowerable(op("aten::slice_scatter", X, TensorSpec((3, 2), F), 1, 3, 2**63 - 1, value=X))
    assert cut.by_name["op"].args[2:] == (1, 3, 5)
    back = lowerable(op("aten::slice_backward", TensorSpec((3, 2), F), (3, 5), 1, 3, 2**63 - 1, 1, value=X))
    assert back.by_name["op"].args[4] == 5


def test_an_input_written_back_becomes_a_value() -> None:
    assert lowerable(op("aten::copy_", X, X, value=X)).by_name["op"].target == "aten::copy"


def test_an_op_without_decomposition_has_no_other_form() -> None:
    assert expanded(op("aten::lgamma", X, value=X), {}) is None


def test_a_decomposition_gives_another_form_with_the_same_results() -> None:
    softplus = torch.ops.aten.softplus.default
    body = expanded(op("aten::softplus", X, value=X), {softplus: lambda x: torch.log(x)})
    assert body is not None
    assert [node.target for node in body.nodes] == ["placeholder", "aten::log", "output"]


def chain() -> GraphSpec:
    """``x -> sin -> (max, indices) -> neg``, and ``u0``, an unknown size that a view takes."""
    return GraphSpec(
        (
            NodeSpec("x", "placeholder", value=X),
            NodeSpec("s", "aten::sin", (Ref("x"),), value=X),
            NodeSpec("m", "aten::max.dim", (Ref("s"), 1), value=(TensorSpec((3,), F), TensorSpec((3,), INT))),
            NodeSpec("m0", "getitem", (Ref("m"), 0), value=TensorSpec((3,), F)),
            NodeSpec("n", "aten::neg", (Ref("m0"),), value=TensorSpec((3,), F)),
            NodeSpec("output", "output", ((Ref("n"), Ref("m0"), None),)),
        )
    )


def test_a_node_cut_out_leaves_its_results_as_inputs_and_what_it_took_as_outputs() -> None:
    rest = cut_out(chain(), {"m"})
    assert rest is not None
    assert [(node.name, node.target) for node in rest.nodes] == [
        ("x", "placeholder"),
        ("m0", "placeholder"),
        ("s", "aten::sin"),
        ("n", "aten::neg"),
        ("output", "output"),
    ]
    assert rest.nodes[-1].args == ((Ref("n"), Ref("s")),)


def test_nothing_is_left_of_a_graph_all_of_whose_calls_are_cut_out() -> None:
    assert cut_out(chain(), {"s", "m", "n"}) is None


def test_what_takes_an_unknown_size_of_a_node_cut_out_goes_with_it() -> None:
    size = NodeSpec("u", "aten::_local_scalar_dense", (Ref("s"),), value=Symbolic("u0"))
    view = NodeSpec("v", "aten::view", (Ref("s"), (Ref("u"),)), value=X)
    *nodes, output = chain().nodes
    rest = cut_out(GraphSpec((*nodes, size, view, output)), {"u"})
    assert rest is not None
    assert "u" not in rest.by_name
    assert "v" not in rest.by_name


def test_the_node_of_an_inlined_bodys_node_is_the_one_it_stands_for() -> None:
    assert chain().node_of("m__a__b") == chain().by_name["m"]
    assert chain().node_of("else") is None
    assert chain().node_of(None) is None


def test_a_graph_gives_nothing_that_neither_returns_a_tensor_nor_writes_to_an_input() -> None:
    *nodes, _ = chain().nodes
    nothing = NodeSpec("output", "output", ((None,),))
    writes = NodeSpec("c", "aten::copy_", (Ref("x"), Ref("s")), value=X)
    assert gives_nothing(GraphSpec((*nodes, nothing)))
    assert not gives_nothing(GraphSpec((*nodes, writes, nothing)))
    assert not gives_nothing(chain())
