"""What a hook, a custom backward or a dispatch mode raises on autograd's device thread reaches the caller."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from smoketest.devices.emulated import compat

pytestmark = pytest.mark.usefixtures("device")


class MineError(Exception):
    pass


def fail(*_: Any) -> None:
    try:
        raise KeyError("the cause")
    except KeyError as cause:
        raise MineError("mine") from cause


def leaf_and_product() -> tuple[Tensor, Tensor]:
    leaf = torch.randn(3, 3).to("neuron").requires_grad_()
    return leaf, leaf * 2


def in_a_tensor_hook() -> None:
    _, y = leaf_and_product()
    y.register_hook(fail)
    y.sum().backward()


def in_a_hook_of_a_leaf() -> None:
    leaf, y = leaf_and_product()
    leaf.register_hook(fail)
    torch.autograd.grad(y.sum(), leaf)


def in_a_hook_after_accumulation() -> None:
    leaf, y = leaf_and_product()
    leaf.register_post_accumulate_grad_hook(fail)
    y.sum().backward()


def in_a_hook_of_a_node() -> None:
    _, y = leaf_and_product()
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(fail)
    y.sum().backward()


def in_a_hook_of_a_module() -> None:
    linear = nn.Linear(3, 3).to("neuron")
    linear.register_full_backward_hook(fail)
    linear(leaf_and_product()[0]).sum().backward()


def in_a_custom_function() -> None:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> None:
            fail()

    Function.apply(leaf_and_product()[1]).sum().backward()  # type: ignore[no-untyped-call]


def in_a_dispatch_mode() -> None:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten.threshold_backward.default:
                fail()
            return func(*args, **(kwargs or {}))

    loss = leaf_and_product()[1].relu().sum()
    with Mode():
        loss.backward()


def in_recomputation_of_a_checkpoint() -> None:
    runs = []

    def block(x: Tensor) -> Tensor:
        runs.append(None)
        if len(runs) == 2:
            fail()
        return x.relu()

    checkpoint(block, leaf_and_product()[1], use_reentrant=False).sum().backward()


def in_a_backward_within_the_backward() -> None:
    def block(x: Tensor) -> Tensor:
        x = x.relu()
        if x.requires_grad:
            x.register_hook(fail)
        return x * 2

    checkpoint(block, leaf_and_product()[1], use_reentrant=True).sum().backward()


PLACES = [
    in_a_tensor_hook,
    in_a_hook_of_a_leaf,
    in_a_hook_after_accumulation,
    in_a_hook_of_a_node,
    in_a_hook_of_a_module,
    in_a_custom_function,
    in_a_dispatch_mode,
    in_recomputation_of_a_checkpoint,
    in_a_backward_within_the_backward,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_what_is_raised_arrives_as_it_was(place: Callable[[], None]) -> None:
    with pytest.raises(MineError, match=r"^mine$") as raised:
        place()
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.traceback[-1].name == "fail"
    assert "type_" not in [entry.name for entry in raised.traceback]
    assert compat._set_aside_here() == []


@pytest.mark.parametrize("exception", [StopIteration, KeyboardInterrupt, SystemExit, SystemError])
def test_any_kind_of_exception_arrives(exception: type[BaseException]) -> None:
    leaf, y = leaf_and_product()

    def hook(grad: Tensor) -> None:
        raise exception("one of its kind")

    y.register_hook(hook)
    with pytest.raises(exception, match="one of its kind"):
        torch.autograd.grad(y.sum(), leaf)


def test_the_next_backward_works() -> None:
    with pytest.raises(MineError):
        in_a_tensor_hook()
    leaf, y = leaf_and_product()
    y.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.sum().item() == 18.0


LATE = """
import torch, smoketest
from smoketest.errors import DeviceUnavailable
torch.ones(2, requires_grad=True).sum().backward()
smoketest.emulate(warn=False)
weight = torch.ones(2).to("neuron").requires_grad_()
for attempt in range(2):
    try:
        (weight * 2).sum().backward()
    except DeviceUnavailable as error:
        print(repr(str(error)))
cpu = torch.ones(2, requires_grad=True)
cpu.sum().backward()
print(cpu.grad.tolist())
"""


def test_a_device_that_comes_after_the_first_backward_says_so_at_its_own_first() -> None:
    ran = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True)
    message = (
        "a backward ran in this process before it had the emulated device, and autograd takes on "
        "no device after its first backward\n  hint: call smoketest.emulate() before the first backward"
    )
    assert ran.stdout.splitlines() == [repr(message), repr(message), "[1.0, 1.0]"]


class Numbered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, number: int) -> Tensor:
        ctx.number = number
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise MineError(ctx.number)


def test_backwards_in_several_threads_at_once_each_raise_their_own_error() -> None:
    caught: list[tuple[int, object]] = []
    together = threading.Barrier(8)

    def work(number: int) -> None:
        for _ in range(20):
            x = torch.ones(3, device="neuron", requires_grad=True)
            y = Numbered.apply(x, number)
            together.wait()
            try:
                y.sum().backward()
            except BaseException as error:
                caught.append((number, error.args[0]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(caught) == 160
    assert {number == said for number, said in caught} == {True}


def test_an_error_kept_by_one_backward_is_not_raised_by_the_next() -> None:
    """A backward within a backward's hook fails and is caught there: the outer one goes on, and nothing is left."""

    def within(grad: Tensor) -> None:
        with torch.enable_grad(), pytest.raises(MineError, match="7"):
            Numbered.apply(torch.ones(1, device="neuron", requires_grad=True), 7).sum().backward()

    x = torch.ones(3, device="neuron", requires_grad=True)
    y = x * 2
    y.register_hook(within)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    with pytest.raises(MineError, match="8"):
        Numbered.apply(x, 8).sum().backward()
