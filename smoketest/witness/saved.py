"""What autograd keeps for backward: the activations of a step.

It is asked through `torch.autograd.graph.saved_tensors_hooks`: each tensor is handed over when it is saved and let go
when backward has used it, so the most that is kept at one time is known, whatever the step does (micro-batches, several
losses, a custom train_step).

It sees what autograd saves itself and what a custom `torch.autograd.Function` saves with ``save_for_backward``. It does
not see what inner hooks take over, such as all within a non-reentrant checkpoint, whose recomputed block is therefore
left out; nor what a Function keeps as a plain attribute. Transforms of `torch.func` raise where such hooks are (see
`compat.refuses_saved_tensors_hooks`). With these hooks PyTorch does not notice a saved tensor changed in place,
so they have a step of their own, after all that counts.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from smoketest.witness.compat import storage_key

__all__ = ["SavedTensors"]


class SavedTensors:
    """Counts the bytes kept for backward while it is entered; each storage once, those of the model not at all.

    Args:
        model: whose parameters and buffers are no activations.

    Attributes:
        peak: the most bytes kept at one time.
        unsized: tensors without a storage, such as sparse ones.
    """

    def __init__(self, model: nn.Module) -> None:
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)
        own = (tensor for tensor in (*model.parameters(), *model.buffers()) if not is_lazy(tensor))
        self._own = {storage_key(tensor) for tensor in own}
        self._kept: dict[int, list[int]] = {}  # key -> [how often, bytes]
        self._now = 0
        self._lock = threading.RLock()  # backward lets go on a thread of its own
        self.peak = 0
        self.unsized = 0

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    def _pack(self, tensor: Tensor) -> _Kept:
        key = storage_key(tensor)
        if key is None:
            self.unsized += 1
        elif key not in self._own:
            with self._lock:
                entry = self._kept.setdefault(key, [0, tensor.untyped_storage().nbytes()])
                entry[0] += 1
                if entry[0] == 1:
                    self._now += entry[1]
                    self.peak = max(self.peak, self._now)
            return _Kept(tensor.detach(), self, key)
        return _Kept(tensor.detach(), self, None)

    def let_go(self, key: int) -> None:
        """One of the tensors with this storage is kept no longer."""
        with self._lock:
            entry = self._kept[key]
            entry[0] -= 1
            if entry[0] == 0:
                self._now -= entry[1]
                del self._kept[key]


class _Kept:
    """A saved tensor; it is let go when autograd drops it. Holding it keeps its storage's key from being reused.

    It is held detached: a result that was saved belongs to the node that holds this, and would keep itself alive.
    Autograd gives what is unpacked its place in the graph again.
    """

    def __init__(self, tensor: Tensor, owner: SavedTensors, key: int | None) -> None:
        self.tensor = tensor
        self._owner = owner
        self._key = key

    def __del__(self) -> None:
        if self._key is not None:
            self._owner.let_go(self._key)


def _unpack(kept: _Kept) -> Tensor:
    return kept.tensor
