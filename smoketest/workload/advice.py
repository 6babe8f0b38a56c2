"""What to do about errors that PyTorch words for somebody else: hints for user code that raised."""

from __future__ import annotations

import re

__all__ = ["hint_for"]

_CUDA = (
    "there is no CUDA here, nor on Trainium: in forward use the input's device, as in device=x.device; the check moves "
    "the model and the batches itself, so make_model and make_batch need no .cuda() or .to(...)"
)
_DTYPES = (
    "weights and batch differ in dtype: give the tensor `dtype: bfloat16` (that of model.dtype) in the batch, or leave "
    "out model.dtype and use `training: {autocast: bfloat16}`"
)
_DIFFER = (
    r"mat1 and mat2 must have the same dtype",
    r"to have the same dtype, but got",
    r"Input type \(.*\) and (weight|bias) type \(.*\) should be the same",
    r"RNN input dtype .* does not match weight dtype",
    r"expected scalar type \w+ but found (Half|BFloat16|Float|Double)",
)
_HINTS = (
    (r"Torch not compiled with CUDA|No CUDA GPUs are available|Found no NVIDIA driver", _CUDA),
    ("|".join(_DIFFER), _DTYPES),
    (
        r"^IndexError: index out of range in self$",
        "a token id is outside the vocabulary: set `high` of that tensor in batch.tensors to the vocabulary's size",
    ),
)


def hint_for(text: str) -> str | None:
    """What to change where `text`, type and text of an exception, is of one that many meet; None for any other."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text)), None)
