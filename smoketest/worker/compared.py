"""Records of a step as what is compared: tensors in order, with words for each."""

from __future__ import annotations

from smoketest.witness.parity import Seen
from smoketest.witness.recorder import Crossing, Event
from smoketest.worker.record import Record

__all__ = ["seen_of"]

_MOST_TAKERS = 3


def seen_of(record: Record, optimizer: str | None) -> list[Seen]:
    """The tensors of a step in the order in which a fault shows.

    What modules hand on in forward, buffers, gradients as backward goes, gradients of parameters from the last module
    to the first, and updates.

    Args:
        record: of the step.
        optimizer: what to call the optimizer.
    """
    forward = [_forward(crossing, event) for crossing, event in record.events.items() if not crossing.is_gradient]
    backward = [_backward(crossing, event) for crossing, event in record.events.items() if crossing.is_gradient]
    buffers = [
        Seen(f"buffer {name}", "buffer", f"what the step adds to the buffer {name}", _owner(name), "forward", digest)
        for name, digest in record.buffers.items()
    ]
    gradients = [
        Seen(f"gradient {name}", "gradient", f"the gradient of {name}", _owner(name), "backward", digest)
        for name, digest in reversed(record.gradients.items())
    ]
    by = f" by {optimizer}" if optimizer else ""
    updates = [
        Seen(
            f"update {name}",
            "update",
            f"the update of {name}{by}",
            _owner(name),
            "optimizer",
            digest,
            stored=record.stored.get(name, 0.0),
        )
        for name, digest in record.updates.items()
    ]
    return [*forward, *buffers, *backward, *gradients, *updates]


def _forward(crossing: Crossing, event: Event) -> Seen:
    """What a module gives is its own doing; what it takes, if nobody gave it, is that of the module around it."""
    here = _shown(crossing.module)
    if crossing.role == "gives":
        what, module = f"the output of {here}", crossing.module
    else:
        what, module = f"what {_shown(event.around)} passes to {here}", event.around or ""
    return Seen(_key(crossing), "value", what, module, "forward", event.digest, event.line)


def _backward(crossing: Crossing, event: Event) -> Seen:
    """A gradient is made by the backward of what takes the tensor: the innermost of the modules that do."""
    names = {name for name, _ in event.takers}
    takers = {name: line for name, line in event.takers if not any(_is_inside(other, name) for other in names)}
    line = event.line
    if takers:
        listed = list(takers)
        named = ", ".join(map(_shown, listed[:_MOST_TAKERS])) + (", …" if len(listed) > _MOST_TAKERS else "")
        what, module = f"the gradient of the input of {named}", listed[-1]
        line = takers[module]
    elif crossing.module:
        what, module = f"the gradient of the output of {crossing.module}", event.around or ""
    else:
        what, module = "the gradient of the model's output", None
    return Seen(_key(crossing), "gradient of a value", what, module, "backward", event.digest, line)


def _is_inside(other: str, module: str) -> bool:
    return other != module and (not module or other.startswith(f"{module}."))


def _key(crossing: Crossing) -> str:
    gradient = "gradient of " if crossing.is_gradient else ""
    return f"{gradient}{crossing.module} {crossing.call} {crossing.role} {crossing.place}"


def _shown(module: str | None) -> str:
    return module or "the model"


def _owner(name: str) -> str:
    return name.rpartition(".")[0]
