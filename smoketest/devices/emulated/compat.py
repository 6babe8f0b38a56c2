"""Everything of PyTorch's that is private or replaced, for the emulated device. Nothing else in the package touches it.

First the names the rest of the package uses, then the patches, each with the reason why Python has to stand in for a
C++ hook. ``DRIFT`` lists what must exist; a test fails loudly when a release of PyTorch takes one of them away.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch.utils import backend_registration

from smoketest.errors import DeviceUnavailable

NAME = "neuron"
"""The name PrivateUse1 gets, as torch-neuronx gives it ([PUB] torch/index.html)."""

DRIFT = (
    "torch._C._to_dlpack",
    "torch._C._from_dlpack",
    "torch._C._get_privateuse1_backend_name",
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    "torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough",
    "torch._C._dispatch_get_all_op_names",
    "torch._C._ExcludeDispatchKeyGuard",
    "torch._C._accelerator_synchronizeDevice",
    "torch._C._accelerator_emptyHostCache",
    "torch._C._accelerator_isAllocatorInitialized",
    "torch._C._accelerator_getMemoryInfo",
    "torch._C._accelerator_getDeviceCapability",
    "torch._C._dynamo.eval_frame.set_code_exec_strategy",
    "torch._C._dynamo.eval_frame._FrameExecStrategy",
    "torch._C._dynamo.eval_frame._FrameAction",
    "torch._C.DispatchKey.AutocastPrivateUse1",
    "torch._C._dispatch_keys",
    "torch._conj",
    "torch._neg_view",
    "torch.clear_autocast_cache",
    "torch.autograd.forward_ad.make_dual",
    "torch.utils.backend_registration._setup_privateuseone_for_python_backend",
    "torch._C._acc.DeviceGuard",
    "torch._C._autograd.DeviceType.PrivateUse1",
    "torch._C._ImperativeEngine",
    "torch.autograd.Variable._execution_engine.run_backward",
    "torch._C._stash_obj_in_tls",
    "torch._C._get_obj_in_tls",
    "torch._C._is_key_in_tls",
)

# ---------------------------------------------------------------------------------------------------- names

Overload = torch._ops.OpOverload
CPU_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
AUTOCAST_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]
to_dlpack: Callable[[torch.Tensor], Any] = torch._C._to_dlpack
from_dlpack: Callable[[Any], torch.Tensor] = torch._C._from_dlpack


def has_kernel(name: str, key: str) -> bool:
    """Whether the overload has a kernel registered under exactly this dispatch key."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def lets_through(name: str, key: str) -> bool:
    """Whether the overload's kernel for this key is a fallthrough: the key's boxed fallback does not see the op."""
    return has_kernel(name, key) and bool(torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(name, key))


def dispatch_keys(tensor: torch.Tensor) -> str:
    """The tensor's dispatch keys, as PyTorch prints them."""
    return str(torch._C._dispatch_keys(tensor))


def aten_overloads() -> list[str]:
    """Names of all ATen overloads this torch knows, ``aten::add.out``."""
    return [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]


def raw_call(op: Overload) -> Callable[..., Any]:
    """The overload as the bare C++ callable: one or two microseconds less than ``OpOverload.__call__``."""
    return op._op


def on_cpu_key(op: Overload) -> Callable[..., Any]:
    """The overload's CPU kernel, run on tensors of any device as they are (boxed redispatch under the CPU key)."""
    redispatch = op._handle.redispatch_boxed
    return lambda *args, **kwargs: redispatch(CPU_KEYS, *args, **kwargs)


def without_autocast() -> AbstractContextManager[Any]:
    """A guard under which the device's autocast kernels are not dispatched to."""
    return cast("AbstractContextManager[Any]", torch._C._ExcludeDispatchKeyGuard(AUTOCAST_KEYS))


def backend_name() -> str:
    """What PrivateUse1 is called in this process; ``privateuseone`` while nobody renamed it."""
    return str(torch._C._get_privateuse1_backend_name())


def register_backend(module: types.ModuleType) -> None:
    """Rename PrivateUse1 and install torch's own Python device guard and hooks; ``module`` becomes ``torch.neuron``."""
    backend_registration._setup_privateuseone_for_python_backend(
        NAME, backend_module=module, device_guard=_device_guard()
    )


# ---------------------------------------------------------------------------------------------------- DLPack capsules

_DEVICE_TYPE_OFFSET = 8  # DLTensor: void* data, then DLDevice {int32 device_type, int32 device_id}
_CAPSULE_POINTER_OFFSET = 16  # PyCapsule: the object head, then void* pointer


def _retag_through_c_api() -> Callable[[Any, int], None]:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    word = ctypes.c_int32.from_address

    def retag(capsule: Any, device_type: int) -> None:
        word(pointer(capsule, b"dltensor") + _DEVICE_TYPE_OFFSET).value = device_type

    return retag


def _retag_through_memory() -> Callable[[Any, int], None]:
    """Without a ctypes call: 0.8 µs less per crossing. Leans on CPython's object layout, see `capsule_retag`."""
    # A memoryview's items are faster to reach than those of the ctypes array it is of.
    words = memoryview((ctypes.c_int32 * (1 << 60)).from_address(0)).cast("B").cast("i")
    pointers = memoryview((ctypes.c_int64 * (1 << 59)).from_address(0)).cast("B").cast("q")

    def retag(capsule: Any, device_type: int) -> None:
        words[(pointers[(id(capsule) + _CAPSULE_POINTER_OFFSET) >> 3] + _DEVICE_TYPE_OFFSET) >> 2] = device_type

    return retag


def layout_is_known() -> bool:
    """Whether this interpreter keeps a capsule's pointer where the fast retag looks for it, read without writing."""
    try:
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        capsule = to_dlpack(torch.zeros(1))
        if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
            return False
        if type(capsule).__basicsize__ < _CAPSULE_POINTER_OFFSET + 8:
            return False
        found = ctypes.c_int64.from_address(id(capsule) + _CAPSULE_POINTER_OFFSET).value
        return bool(found == pointer(capsule, b"dltensor"))
    except (AttributeError, OSError, ValueError):
        return False


def capsule_retag() -> Callable[[Any, int], None]:
    """A function that writes a device type into a DLPack capsule: the fast one where the layout check passes."""
    return _retag_through_memory() if layout_is_known() else _retag_through_c_api()


# ---------------------------------------------------------------------------------------------------- patches


def patch(to_device: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace what only C++ hooks could give a device written in Python. Tensors of other devices see no difference.

    Args:
        to_device: the zero-copy crossing from CPU memory to the device.
    """
    _patch_storages(to_device)
    _patch_events()
    _patch_accelerator()
    _patch_engine()


def _patch_storages(to_device: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Storages of the device are made in Python.

    C++ makes a storage through ``c10::GetAllocator(PrivateUse1)``, which is null for a Python device: creating one is
    a segmentation fault (deepcopy, torch.load, ``storage.new``). The resize hook is not overridable either.
    """
    storage: Any = torch.UntypedStorage
    plain_new, plain_resize, plain_make = storage.__new__, storage.resize_, storage.new
    plain_size, plain_length = storage.nbytes, storage.__len__

    def new(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None:
            return plain_new(cls, *args, **kwargs)
        if torch.device(device).type != NAME:
            return plain_new(cls, *args, device=device, **kwargs)
        memory = plain_new(cls, *args, device="cpu", **kwargs)
        return to_device(torch.empty(0, dtype=torch.uint8).set_(memory)).untyped_storage()

    def resize_(self: Any, size: int) -> Any:
        if self.device.type != NAME:
            return plain_resize(self, size)
        if size > plain_size(self):
            raise NotImplementedError(f"{NAME}: a storage of the emulated device cannot grow in place")
        # FSDP frees a storage with 0 and later asks for the same size again: the memory stays, the size is shown.
        # Not showing it made FSDP skip an all-gather and train silently wrong.
        self.shown_size = size
        return self

    def nbytes(self: Any) -> Any:
        # Not int(): a fake tensor's size may be symbolic, and would become a constant of Dynamo's graph.
        shown = getattr(self, "shown_size", None)
        return plain_size(self) if shown is None else shown

    def length(self: Any) -> Any:
        shown = getattr(self, "shown_size", None)
        return plain_length(self) if shown is None else shown

    def make(self: Any, *args: Any, **kwargs: Any) -> Any:
        return storage(0, device=self.device) if self.device.type == NAME else plain_make(self, *args, **kwargs)

    storage.__new__, storage.resize_, storage.new = new, resize_, make
    storage.nbytes = storage.size = nbytes
    storage.__len__ = length


def _standing_for(base: type) -> type:
    """A metaclass for a subclass that replaces ``base`` in torch: instances of ``base`` count as its own."""

    def is_instance(cls: type, instance: object) -> bool:
        return isinstance(instance, base)

    return type(f"StandingFor{base.__name__}", (type(base),), {"__instancecheck__": is_instance})


def device_event_type() -> type[torch.Event]:
    """A ``torch.Event`` whose device events are clock readings: every op has finished when it returns."""
    plain = torch.Event

    class Event(plain, metaclass=_standing_for(plain)):  # type: ignore[misc, valid-type, metaclass]
        def __new__(cls, device: Any = NAME, **kwargs: Any) -> Any:
            of_device = torch.device(device).type == NAME
            return plain.__new__(cls if of_device else plain, device=device, **kwargs)

        def record(self, stream: Any = None) -> None:
            self.recorded_at = time.perf_counter()

        def elapsed_time(self, end_event: Any) -> float:
            return float((end_event.recorded_at - self.recorded_at) * 1e3)

        def synchronize(self) -> None: ...

        def wait(self, stream: Any = None) -> None: ...

        def query(self) -> bool:
            return True

    return Event


Event = device_event_type()


def _patch_events() -> None:
    """``torch.Event`` asks the device guard for an event, which a Python guard cannot make.

    Not ``torch.Stream``: Dynamo traces its construction, warns, and then leaks four graph modules per compile.
    """
    torch.Event = Event  # type: ignore[misc]


def _patch_accelerator() -> None:
    """``torch.accelerator`` reaches C++ hooks the device has not: ``emptyHostCache`` is a segmentation fault.

    The allocator says it is not initialised, so that memory statistics are empty rather than invented.
    """
    answers: dict[str, Any] = {
        "synchronizeDevice": None,
        "emptyHostCache": None,
        "isAllocatorInitialized": False,
        "getMemoryInfo": (0, 0),
        "getDeviceCapability": {},
    }
    for name, answer in answers.items():
        setattr(torch._C, f"_accelerator_{name}", lambda *args, _answer=answer: _answer)


def before_making_duals(tell: Callable[[], None]) -> None:
    """Have ``tell`` called when forward-mode differentiation begins on a tensor of the device.

    No op of the device's passes then: PyTorch makes a dual tensor above its kernels.
    """
    from torch.autograd import forward_ad

    plain: Any = forward_ad.make_dual

    def make_dual(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if tensor.device.type == NAME:
            tell()
        return plain(tensor, *args, **kwargs)

    forward_ad.make_dual = make_dual


def after_clearing_autocast_cache(also: Callable[[], None]) -> None:
    """Have ``also`` called when an autocast region ends: that is when autocast drops its cached casts."""
    clear = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        clear()
        also()

    torch.clear_autocast_cache = clear_autocast_cache


# ---------------------------------------------------------------------------------------------------- backward

_SET_ASIDE = "smoketest: exceptions of this backward"
"""Key of a list that autograd carries, with the other thread-local state, from the thread that calls a backward to
those that run it: exceptions that were on their way through C++ when a guard asked for the device type."""

_TOO_LATE = "device_ready_queues_"
"""In the text of the assertion autograd fails with when its engine was started before there was a device."""


def _device_guard() -> Any:
    """The guard through which C++ asks which device this is; it may be asked while an exception passes.

    An exception of a hook, a custom backward or a dispatch mode unwinds autograd's device thread, and the destructors
    there call this Python method with the exception still set. Python then turns the call into a SystemError, and an
    error in a destructor ends the process. So it is set aside here, and raised again by `_Engine`.
    """
    device_type = torch._C._autograd.DeviceType.PrivateUse1
    # Documented of ctypes.PyDLL: when the error flag is set after the call, that exception is raised.
    raise_what_is_set = ctypes.pythonapi.PyErr_Occurred
    raise_what_is_set.argtypes, raise_what_is_set.restype = [], ctypes.c_void_p

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            try:
                raise_what_is_set()
            except BaseException as passing:  # whatever it is, C++ must not see it a second time
                _set_aside_here().append(passing)
            return device_type

    return Guard()


def _set_aside_here() -> list[BaseException]:
    """The list of the backward this thread works for; one that nobody reads where there is none."""
    known = torch._C._is_key_in_tls(_SET_ASIDE)
    return cast("list[BaseException]", torch._C._get_obj_in_tls(_SET_ASIDE)) if known else []


_NO_PINNED_MEMORY = "getPinnedMemoryAllocator"
"""In the text of the error of C++ that asks the hooks of a device for pinned memory; a Python device has none."""


class _Engine(torch._C._ImperativeEngine):
    """Autograd's engine, with the three errors told that it cannot tell itself on a device written in Python."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        """As the engine's own.

        Raises:
            DeviceUnavailable: a backward ran before the device existed; the engine takes on no devices later. Or DDP
                looks for unused parameters, for which its C++ pins memory.
        """
        around, aside = _set_aside_here(), list[BaseException]()  # backwards nest, and run in several threads at once
        torch._C._stash_obj_in_tls(_SET_ASIDE, aside)
        try:
            return super().run_backward(*args, **kwargs)
        except SystemError:  # "returned NULL without setting an exception"
            if not aside:
                raise
            passing = aside[0]
        except RuntimeError as error:
            if _NO_PINNED_MEMORY in str(error):
                raise DeviceUnavailable(
                    "the emulated device cannot run DistributedDataParallel with find_unused_parameters=True or "
                    "static_graph=True: PyTorch pins memory for them in C++, which a device in Python has no part in",
                    hint="leave them off here; on the device their sum of 32-bit integers over ranks is one that the "
                    "compiler is documented to refuse (NCC_EVRF061)",
                ) from error
            if _TOO_LATE not in str(error):
                raise
            raise DeviceUnavailable(
                "a backward ran in this process before it had the emulated device, and autograd takes on no device "
                "after its first backward",
                hint="call smoketest.emulate() before the first backward",
            ) from error
        finally:
            torch._C._stash_obj_in_tls(_SET_ASIDE, around)
        traceback = passing.__traceback__
        raise passing.with_traceback(traceback and traceback.tb_next)  # without the guard's own frame


def _patch_engine() -> None:
    """Every backward of Python's passes this attribute."""
    torch.autograd.Variable._execution_engine = _Engine()


# ---------------------------------------------------------------------------------------------------- Dynamo


def keep_out_of_dynamo(module: types.ModuleType) -> None:
    """Have Dynamo run every function of ``module``, and all that it calls, as it is.

    After a graph break the ops of a user's function run eagerly, our Python kernels are frames like any other to
    Dynamo, and would show up in the user's graphs, breaks and recompiles. Marking the code object costs nothing per
    call, where `torch.compiler.disable` costs microseconds, and does not import Dynamo.
    """
    frame: Any = torch._C._dynamo.eval_frame
    skip = frame._FrameExecStrategy(frame._FrameAction.SKIP, frame._FrameAction.SKIP)
    for code in _codes_of(module):
        frame.set_code_exec_strategy(code, skip)


def _codes_of(module: types.ModuleType) -> Iterator[types.CodeType]:
    """The code objects of all functions and methods written in ``module``, nested ones too."""
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    seen: list[Any] = list(own)
    for value in own:
        if isinstance(value, type):
            seen += list(vars(value).values())
    for value in seen:
        function = getattr(value, "__func__", getattr(value, "fget", value))
        code = getattr(function, "__code__", None)
        if code is not None:
            yield from _nested(code)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def register_compile_backend(name: str, backend: Callable[..., Any]) -> None:
    """Make a backend known to Dynamo; imports Dynamo."""
    from torch._dynamo.backends.registry import register_backend

    register_backend(backend, name=name)


def when_dynamo_is_imported(then: Callable[[], None]) -> None:
    """Call ``then`` once ``torch._dynamo`` is loaded: now, or when somebody imports it.

    A compile backend can only be registered with Dynamo, whose import takes longer than everything else here.
    """
    when_imported("torch._dynamo", then)


def when_imported(module: str, then: Callable[[], None]) -> None:
    """Call ``then`` once a module is loaded: now, or when somebody imports it."""
    if module in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(module, then))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds one module once, as the other finders do, and calls back when it has been executed."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, fullname: str, path: Any = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: types.ModuleType) -> None:
                execute(module)
                self.then()

            loader.exec_module = exec_module
        return spec
