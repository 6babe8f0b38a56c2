"""Which ops have a kernel of the backend's, asked of PyTorch's table at the moment."""

from __future__ import annotations

import pytest
import torch

from smoketest.witness import registry
from smoketest.witness.registry import Registry


def test_an_op_has_a_kernel_from_when_one_is_registered_and_only_the_overload_that_has() -> None:
    library = torch.library.Library("smoketest_registry", "FRAGMENT")
    library.define("sort(Tensor x) -> Tensor")
    library.define("sort.stable(Tensor x, bool stable) -> Tensor")
    asked = Registry()
    assert asked.readable
    assert asked.has_kernel("smoketest_registry::sort.stable") is False
    library.impl("sort.stable", lambda x, stable: x, "PrivateUse1")
    assert asked.has_kernel("smoketest_registry::sort.stable") is True
    assert asked.has_kernel("smoketest_registry::sort") is False
    assert asked.has_kernel("smoketest_registry::sort.other") is True, "no such overload: any of the op's counts"


@pytest.mark.parametrize("name", ["no_such_op", "aten::no_such_op.out"])
def test_an_op_that_pytorch_does_not_know_has_none(name: str) -> None:
    assert Registry().has_kernel(name) is False


def test_nobody_can_tell_where_it_is_switched_off_or_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Registry(on=False).has_kernel("aten::add.Tensor") is None
    monkeypatch.setattr(registry, "registry_is_readable", lambda: False)
    assert Registry().has_kernel("aten::add.Tensor") is None
