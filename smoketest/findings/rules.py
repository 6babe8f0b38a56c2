"""The rules: what kinds of trouble a report names, and what each is worth by default (design, section 9)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["RULES", "Default", "Rule"]

Default = Literal["deny", "warn", "by_grounds"]


@dataclass(frozen=True)
class Rule:
    """One kind of finding.

    Attributes:
        id: stable identifier, as written in ``gate.allow`` and in reports.
        class_: the name policies use; several rules share one.
        default: the verdict without a policy. ``by_grounds``: denied where the grounds are firm, else a warning.
        title: what was found, a few words.
        remedy: what to do about it, one sentence.
    """

    id: str
    class_: str
    default: Default
    title: str
    remedy: str


_ALL = (
    Rule("NST101", "fallback", "by_grounds", "op ran on the CPU",
         "Replace the op by ones the device runs, move it out of the training step, or accept it under gate.allow."),
    Rule("NST102", "hidden", "warn", "host work inside an op that counts as native",
         "Use 32-bit dtypes and contiguous tensors."),
    Rule("NST103", "host_sync", "warn", "the device waits for the host",
         "Keep the value on the device, or read it once every many steps."),
    Rule("NST104", "op_failed", "deny", "op raised: neither a kernel nor a CPU fallback",
         "Replace the op: setting fallback variables does not help, PyTorch has no CPU kernel for it either."),
    Rule("NST105", "non_finite", "deny", "loss or gradient is not finite",
         "Find the first op that made it; check the learning rate, the dtype and the inputs on plain CPU."),
    Rule("NST106", "parity", "deny", "results differ from the CPU reference",
         "Compare the named module on both devices."),
    Rule("NST107", "moved", "deny", "moving the model changed it",
         "Register the tensor as a parameter or buffer, and tie weights again after the move."),
    Rule("NST201", "lowering", "by_grounds", "op fails lowering",
         "Rewrite the op with ones that lower, or keep it out of the compiled region: in a function of its own under"
         " `@torch.compiler.disable`, which runs it eagerly and ends the graph there."),
    Rule("NST202", "lowering", "deny", "graph cannot be imported",
         "Keep the line out of the compiled region: in a function of its own under `@torch.compiler.disable`, which"
         " runs it eagerly and ends the graph there."),
    Rule("NST203", "lowering", "deny", "the Neuron compiler rejects the graph",
         "Follow the remedy documented for the error code."),
    Rule("NST204", "graph_break", "warn", "graph break, or a frame Dynamo skipped",
         "Rewrite the line with tensor ops alone, or move it out of forward. `torch.compile(model, fullgraph=True)`"
         " raises at a break, so that no new one goes unseen."),
    Rule("NST205", "recompile", "warn", "compiled again",
         "Make what the guard names the same in every call: pad or bucket shapes, keep numbers read from tensors as"
         " tensors, set attributes before the first call, and call in one mode."),
    Rule("NST206", "dynamic_shape", "deny", "dynamic or data-dependent shape in a graph",
         "Give the tensor a fixed size: a mask instead of a selection, or padding to a maximum."),
    Rule("NST207", "compiler_limit", "warn", "lowers, but a known limit of the Neuron compiler applies",
         "Follow the remedy documented for the error code."),
    Rule("NST208", "parity", "deny", "compiled result differs from the eager one",
         "Compare the named graph in both modes."),
    Rule("NST301", "environment", "deny", "torch-neuronx is not the native product",
         "Install the native release in a fresh environment."),
    Rule("NST302", "environment", "deny", "versions do not match",
         "Install a documented pair of torch and torch-neuronx."),
    Rule("NST303", "environment", "deny", "device not usable", "Run `smoketest doctor`."),
    Rule("NST304", "environment", "warn", "a setting changes what is measured",
         "Unset the variable, or set it on purpose in every run that is compared."),
)  # fmt: skip

RULES: dict[str, Rule] = {rule.id: rule for rule in _ALL}
