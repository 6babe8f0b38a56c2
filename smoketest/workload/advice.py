"""What to do about errors that PyTorch words for somebody else: hints for user code that raised."""

from __future__ import annotations

import re

__all__ = ["hint_for"]

_CUDA = (
    "there is no CUDA here, nor on Trainium: in forward use the input's device, as in device=x.device; the check moves "
    "the model and the batches itself, so make_model and make_batch need no .cuda() or .to(...); a training script "
    "runs as it is with smoketest script --map-cuda"
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
    (
        r"Expected to have finished reduction in the prior iteration",
        "some parameters take no part in the loss, which DDP cannot do with: remove them, or use `parallel: fsdp2`",
    ),
    (
        r"'DistributedDataParallel' object has no attribute",
        "under `parallel: ddp` the step gets PyTorch's wrapper: the model is model.module, and only a call of "
        "model(...) averages gradients",
    ),
    (
        r"mixed torch\.Tensor and DTensor",
        "a part of the model was called, or its parameters used, outside the call of the module that is distributed: "
        "call the module itself, not its parts or its functions",
    ),
    (
        r"Invalid device id: \d",
        'a process has one device, whose index is its local rank: write the bare "neuron", or use the input\'s device',
    ),
    (
        r"default process group twice",
        "run --nproc has made the group already: guard with `if not dist.is_initialized()`",
    ),
)


def hint_for(text: str) -> str | None:
    """What to change where `text`, type and text of an exception, is of one that many meet; None for any other."""
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text)), None)
