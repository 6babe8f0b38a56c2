"""Arguments that an op takes on the CPU by contract: a CPU tensor there is right, and one of the device is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

__all__ = ["HOST_ARGUMENTS", "host_tensors"]

HOST_ARGUMENTS: dict[str, frozenset[str]] = {
    "aten::_pack_padded_sequence": frozenset({"lengths"}),
    "aten::_pack_padded_sequence_backward": frozenset({"batch_sizes"}),
    "aten::_pad_packed_sequence": frozenset({"batch_sizes"}),
    **dict.fromkeys(
        ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu", "aten::_cudnn_rnn", "aten::miopen_rnn"),
        frozenset({"batch_sizes"}),
    ),
    **dict.fromkeys(
        ("aten::ctc_loss", "aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_cudnn_ctc_loss"),
        frozenset({"input_lengths", "target_lengths"}),
    ),
    "aten::tensor_split": frozenset({"tensor_indices_or_sections"}),
    **dict.fromkeys(
        ("aten::_foreach_addcdiv", "aten::_foreach_addcdiv_", "aten::_foreach_addcmul", "aten::_foreach_addcmul_"),
        frozenset({"scalars"}),
    ),
    **dict.fromkeys(
        (
            "aten::_scaled_dot_product_flash_attention_backward",
            "aten::_scaled_dot_product_efficient_attention_backward",
            "aten::_scaled_dot_product_fused_attention_overrideable_backward",
            "aten::_scaled_dot_product_cudnn_attention_backward",
        ),
        frozenset({"philox_seed", "philox_offset"}),
    ),
    **dict.fromkeys(
        ("aten::_nested_view_from_buffer", "aten::_nested_view_from_buffer_copy"),
        frozenset({"nested_size", "nested_strides", "offsets"}),
    ),
    "aten::_nested_from_padded": frozenset({"cpu_nested_shape_example"}),
}
"""By the op's name without overload: names of the arguments. Source: PyTorch's own checks of these ops ("must be on
the CPU", "Expected scalars to be on CPU") and its random state for attention, which it keeps on the CPU."""


def host_tensors(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Tensor]:
    """The CPU tensors among the arguments of a call that its op does not want there, numbers (0-d tensors) apart.

    An argument of anybody's op whose name says ``cpu`` or ``host`` is wanted there as well.

    Args:
        func: the overload that is called with `args` and `kwargs`.
    """
    named = {argument.name: value for argument, value in zip(func._schema.arguments, args, strict=False)}
    wanted = HOST_ARGUMENTS.get(func.name().partition(".")[0], frozenset())
    for name, value in (*named.items(), *kwargs.items()):
        if name not in wanted and not {"cpu", "host"} & set(name.split("_")):
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(tensor, Tensor) and tensor.device.type == "cpu" and tensor.dim():
                    yield tensor
