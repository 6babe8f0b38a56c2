"""Whether a job fits the device, out of sizes: a pure function, with its assumptions written out.

What is known of the device is what people reported of it: 24 GiB for a logical core of a Trn2 with LNC=2 ([USER-B4]
xpu-perf, from the compiler's own NCC_EOOM001), and 2 to 60 s for the compilation of each new shape ([USER] threads
44302, 44741, 44742, 44748 and 44757 of huggingface/transformers).
"""

from __future__ import annotations

from dataclasses import dataclass

from smoketest.findings.report import FitPart

__all__ = ["COMPILE_SECONDS", "DEVICE_BYTES", "Sizes", "Steps", "estimate"]

DEVICE_BYTES = 24 * 2**30
"""Memory of one logical core of a Trn2 with LNC=2. [USER-B4] xpu-perf, its NEURON README."""

COMPILE_SECONDS = (2.0, 60.0)
"""Fewest and most seconds reported for compiling one new shape. [USER] transformers 44741 and others.

Left out: single gathers and scatters that were reported to compile for hours ([USER-B4] xpu-perf).
"""

_ALWAYS = (
    "one logical core of a Trn2 (LNC=2) has 24 GiB, as its users report; one replica, nothing sharded over cores",
    "gradients have the dtype of their parameters, and every parameter that requires one gets one",
    "left out: what an op needs while it runs, fragmentation, the compiled kernels and the runtime",
)
_OF_A_STEP = (
    "activations are those of the batch of this check; under torch.compile fewer may be kept",
    "a kernel is compiled for each op with its shapes and dtypes, views and plain copies apart; those that the release"
    " has compiled ahead or in its cache cost nothing, and constants may add more",
)


@dataclass(frozen=True)
class Sizes:
    """What a model and its optimizer hold, in bytes.

    Attributes:
        parameters: how many numbers; tied ones once.
        parameter_bytes: of the weights.
        buffer_bytes: of the buffers.
        gradient_bytes: of one gradient for each parameter that requires one.
        optimizer_bytes: of the optimizer's state after a step; None where it cannot be told.
        optimizer: its name, for messages.
        why_no_optimizer: why its state is not known.
        built_bytes: of weights and buffers as they are built, before each is copied to a device: views of one storage,
            and what was expanded, share it. None where that is not known.
    """

    parameters: int
    parameter_bytes: int
    buffer_bytes: int
    gradient_bytes: int
    optimizer_bytes: int | None
    optimizer: str = "optimizer"
    why_no_optimizer: str | None = None
    built_bytes: int | None = None

    @property
    def model_bytes(self) -> int:
        """Weights and buffers on a device."""
        return self.parameter_bytes + self.buffer_bytes

    @property
    def held_bytes(self) -> int:
        """Weights and buffers where they were built."""
        return self.model_bytes if self.built_bytes is None else self.built_bytes

    @property
    def training_bytes(self) -> int:
        """Weights, buffers, gradients and, where it is known, the optimizer's state."""
        return self.model_bytes + self.gradient_bytes + (self.optimizer_bytes or 0)


@dataclass(frozen=True)
class Steps:
    """What a step holds and computes.

    Attributes:
        activation_bytes: kept for backward, at its most.
        unsized: kept tensors whose memory cannot be told.
        kernels: distinct signatures the device computed in the traced step; None where nobody counted them.
        new_kernels: signatures of the step after that were not among them.
        moving: some of those, in words.
    """

    activation_bytes: int
    unsized: int = 0
    kernels: int | None = None
    new_kernels: int | None = None
    moving: tuple[str, ...] = ()


def estimate(
    sizes: Sizes,
    steps: Steps | None = None,
    *,
    built: bool,
    host_bytes: int,
    host_limit: int | None,
    device_bytes: int = DEVICE_BYTES,
) -> FitPart:
    """The report's part.

    Args:
        sizes: of model and optimizer.
        steps: of a step; None before one was made.
        built: whether `sizes` are of the model that ran, not of one on the meta device.
        host_bytes: what this machine needs for it, activations apart.
        host_limit: memory of this machine; None where it cannot be read.
        device_bytes: memory of one logical core.
    """
    activations = steps.activation_bytes if steps is not None else None
    total = sizes.training_bytes + (activations or 0)
    known = activations is not None and sizes.optimizer_bytes is not None
    assumed = list(_ALWAYS)
    if sizes.why_no_optimizer is not None:
        assumed.append(f"the state of the {sizes.optimizer} is not known: {sizes.why_no_optimizer}")
    if steps is not None:
        assumed += _OF_A_STEP
        if steps.unsized:
            assumed.append(f"{steps.unsized} tensors kept for backward have no storage of their own and are left out")
    kernels = steps.kernels if steps is not None else None
    return FitPart(
        status="ran",
        basis="built" if built else "meta",
        parameters=sizes.parameters,
        parameter_bytes=sizes.parameter_bytes,
        buffer_bytes=sizes.buffer_bytes,
        gradient_bytes=sizes.gradient_bytes,
        optimizer_bytes=sizes.optimizer_bytes,
        activation_bytes=activations,
        total_bytes=total,
        device_bytes=device_bytes,
        fits=False if total > device_bytes else (True if known else None),
        host_bytes=host_bytes,
        host_limit=host_limit,
        kernels=kernels,
        compile_seconds=None if kernels is None else (kernels * COMPILE_SECONDS[0], kernels * COMPILE_SECONDS[1]),
        new_kernels=steps.new_kernels if steps is not None else None,
        moving=steps.moving if steps is not None else (),
        assumptions=tuple(assumed),
    )
