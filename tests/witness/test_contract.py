"""A CPU tensor that an op wants on the CPU crosses nowhere."""

from __future__ import annotations

import pytest
import torch

from smoketest.witness.contract import HOST_ARGUMENTS, host_tensors


@pytest.mark.parametrize("name", sorted(HOST_ARGUMENTS))
def test_the_ops_of_the_table_have_the_arguments_it_names(name: str) -> None:
    packet = getattr(torch.ops.aten, name.partition("::")[2])
    schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
    assert HOST_ARGUMENTS[name] <= {argument.name for schema in schemas for argument in schema.arguments}


def test_lengths_are_wanted_on_the_cpu_and_an_index_is_not() -> None:
    data, lengths, index = torch.ones(2, 3), torch.tensor([3, 1]), torch.tensor([1, 0])
    pack = torch.ops.aten._pack_padded_sequence.default
    assert not list(host_tensors(pack, (data.to("meta"), lengths, True), {}))
    assert not list(host_tensors(pack, (data.to("meta"),), {"lengths": lengths, "batch_first": True}))
    assert list(host_tensors(torch.ops.aten.index.Tensor, (data.to("meta"), [None, index]), {})) == [index]
    assert not list(host_tensors(torch.ops.aten.index.Tensor, (data.to("meta"), [torch.tensor(1)]), {}))  # a number


def test_an_argument_that_is_called_after_the_cpu_is_wanted_there() -> None:
    with torch.library._scoped_library("smoketest_contract", "DEF") as library:
        library.define("attend(Tensor x, Tensor cu_seqlens_cpu, Tensor cu_seqlens) -> Tensor")
        attend = torch.ops.smoketest_contract.attend.default
        ends = torch.tensor([0, 3])
        found = list(host_tensors(attend, (torch.ones(3, device="meta"), ends, ends[1:]), {}))
        assert [tensor.shape for tensor in found] == [(1,)]
