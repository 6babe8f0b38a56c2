"""``torch.neuron`` of the emulated device: the documented surface that a device without hardware can answer for.

The names are the real module's ([PRE] internals, section 5). Device properties are absent: the emulation has nothing
true to say there. Memory is that of the tensors (see `smoketest.devices.emulated.memory`). Random numbers are drawn
from PyTorch's CPU generator, so that ``torch.manual_seed`` gives the numbers a CPU run gets; on the device they come
from a stream of its own.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from smoketest.devices.emulated.compat import NAME, Event
from smoketest.devices.emulated.dynamo.metrics import get_dynamo_metrics, reset_dynamo_metrics
from smoketest.devices.emulated.memory import COUNTER
from smoketest.devices.emulated.ranks import refuse_index

__all__ = [
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_dynamo_metrics",
    "get_rng_state",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_dynamo_metrics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_stream",
    "stream",
    "synchronize",
]


class Stream(torch.Stream):
    """The one stream of the device: every op has finished when it returns, so there is never anything to wait for."""

    def __new__(cls, device: Any = NAME, priority: int = 0, **kwargs: Any) -> Stream:  # noqa: D102
        return super().__new__(cls, device=device, priority=priority, **kwargs)

    def record_event(self, event: Any = None) -> Any:
        """Record ``event``, or a new one, and return it."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Any) -> None:
        """Return: what the event stands for is done."""

    def wait_stream(self, stream: Any) -> None:
        """Return: what the stream was given is done."""

    def synchronize(self) -> None:
        """Return: what the stream was given is done."""

    def query(self) -> bool:
        """Whether all work is done; it always is."""
        return True


class device(contextlib.nullcontext[None]):  # noqa: N801 - the name torch looks for
    """Context in which a device of the one there is is the current one."""

    idx = prev_idx = 0

    def __init__(self, device: Any = None) -> None:
        refuse_index(_index(device), from_tensors=True)
        super().__init__()


def _index(which: Any) -> int | None:
    return which if which is None or isinstance(which, int) else torch.device(which).index


def set_device(device: Any) -> None:
    """Choose the current device: a process has one, that of its local rank.

    Raises:
        ValueError: there is no such device in this process ([PRE] ``torch_neuronx.set_device``).
    """
    refuse_index(_index(device))


def is_initialized() -> bool:
    """True: the emulated device needs no runtime."""
    return True


def is_available() -> bool:
    """True: in this process there is an (emulated) device."""
    return True


def init() -> None:
    """Nothing to do."""


def device_count() -> int:
    """One: PyTorch's device guard for Python backends knows no more."""
    return 1


def current_device() -> int:
    """0, as tensors of the device say in every process: FSDP compares the two. On the device, the local rank."""
    return 0


def get_device_name(device: Any = None) -> str:
    """``neuron:0``."""
    return f"{NAME}:{_index(device) or 0}"


def synchronize(device: Any = None) -> None:
    """Return: every op has finished when it returns."""


def empty_cache() -> None:
    """Nothing to do: memory is the CPU allocator's."""


def memory_allocated(device: Any = None) -> int:
    """Bytes of the device's tensors; the first question about memory begins the counting."""
    COUNTER.begin()
    return COUNTER.current


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes of tensors at once since `reset_peak_memory_stats`, or since the first question."""
    COUNTER.begin()
    return COUNTER.peak


def memory_reserved(device: Any = None) -> int:
    """0, as the backend says ([PRE] internals, section 5)."""
    return 0


max_memory_reserved = memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Have the peak start at what there is now."""
    COUNTER.begin()
    COUNTER.reset_peak()


def memory_stats(device: Any = None) -> dict[str, Any]:
    """What was counted, under the backend's keys ([PRE] internals, section 5); retries and errors there are none."""
    COUNTER.begin()
    held = {
        "current": COUNTER.current,
        "peak": COUNTER.peak,
        "allocated": COUNTER.allocated,
        "freed": COUNTER.allocated - COUNTER.current,
    }
    return {
        "allocated_bytes": held,
        "active_bytes": dict(held),
        "reserved_bytes": dict.fromkeys(held, 0),
        "num_alloc_retries": 0,
        "num_ooms": 0,
        "allocation_requests": COUNTER.requests,
    }


def current_stream(device: Any = None) -> Stream:
    """The stream of the device."""
    return Stream()


default_stream = current_stream


def set_stream(stream: Any) -> None:
    """Nothing to do: streams are alike."""


def stream(stream: Any) -> contextlib.nullcontext[Any]:
    """A context that changes nothing: streams are alike."""
    return contextlib.nullcontext(stream)


def manual_seed(seed: int) -> None:
    """Seed the generator the device draws from, which is the CPU's."""
    torch.default_generator.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the generator the device draws from with a random number."""
    torch.default_generator.seed()


seed_all = seed


def initial_seed() -> int:
    """The seed of the generator the device draws from."""
    return int(torch.default_generator.initial_seed())


def get_rng_state(device: Any = None) -> torch.Tensor:
    """State of the generator the device draws from, a CPU tensor of bytes."""
    return torch.get_rng_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Put the state of `get_rng_state` back."""
    torch.set_rng_state(new_state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What ``torch.autocast("neuron")`` takes ([PRE] internals, section 5)."""
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """True ([PRE] internals, section 5)."""
    return True


def _is_in_bad_fork() -> bool:
    return False
