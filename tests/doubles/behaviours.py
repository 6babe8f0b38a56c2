"""What the doubles of torch-neuronx do: each behaviour as data, with where it is known from.

Grades of evidence as in smoketest/doctor/facts.py: [PUB] Amazon's documentation, [USER-Bx] a third party's report from
a closed beta, [PRE] a pre-release source tree of April 2026, [INFER] concluded from these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["BEHAVIOURS", "Behaviour", "Compiler", "Failure"]

Failure = Literal["early", "child", "late", "lost"]
"""How the kernel of an op fails.

early: in the call itself, where it is lowered ([PRE] op_impl.py: the exception becomes a failed result); the CPU takes
    over and the op is recorded, or with TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=1 the call raises ([PRE]
    base.py).
child: the same, in a neuronx-cc that is a process of its own, prints to the terminal and ends with 70
    ([USER-B3] "Command failed (neuronx-cc compilation) with exit code 70").
late: in the asynchronous pipeline, when the device is next waited for ([PRE] ErrorRecovery.cpp); the CPU takes over and
    the op is recorded then, or with the variable set the waiting raises ([PRE] CPUFallbackExecutor.cpp).
lost: its execution on the device fails, which nothing recovers from ([PRE] internals 2.4); the waiting raises.
"""

Compiler = Literal["works", "lowers", "refuses", "child", "late", "wrong", "slow", "dies"]
"""What becomes of a graph of torch.compile(backend="neuron") after it was lowered.

lowers: it takes ops that public torch-mlir refuses. [INFER] the backend has lowerings of its own.
refuses: compiling it raises, with exit code and error code in the text ([PRE] ErrorHandler.cpp, [USER-B3]).
child: the same, in a neuronx-cc that is a process of its own; its code is on the terminal and not in the text.
late: it is compiled in the background, and the error is told when the device is next waited for ([USER-B4]; [PRE]).
wrong: it gives values one percent too large ([USER-B3]: a bfloat16 attention that miscomputes).
slow: its first run waits a second for the compiler.
dies: running it ends the process ([USER]: SIGSEGV of NCC_IBTN006, which no except clause catches).
"""


@dataclass(frozen=True)
class Behaviour:
    """One torch-neuronx.

    Attributes:
        product: ``native``, or what else goes by the name; the other fields are the native one's.
        tracker: whether ``get_fallback_ops`` and its two companions exist. [PRE]; seen up to beta 4 [USER-B4];
            unconfirmed for the public releases, so one without them must be reckoned with.
        records: whether the tracker records what falls back; one that does not must not make a run clean. [OWN]
        warns: whether an op warns the first time it falls back in the process. That unsupported ops fall back "by
            default" is [PUB] best-practices page; whether a release says so is not known. The pre-release's logger
            drops the message ([PRE] NeuronLogging.h), hence False.
        asynchronous: whether names and errors of ops arrive only when the device is waited for. "unless_blocking":
            as NEURON_LAUNCH_BLOCKING says, whose default depends on the build ([PRE] _build_config.py); "always" is the
            worst that can be: whether the public wheel heeds the variable is not known.
        build: decides the defaults of two variables, which are set on import where the user did not set them. [PRE]
        failing: overloads whose kernel fails, and how.
        slow: overloads whose first call is compiled by a neuronx-cc child process for so many seconds: an eager op
            without a prebuilt kernel starts one [USER-B4].
        device: what the first use of the device meets. "busy" is not among them: every native double keeps its core to
            itself, as one process per core does [USER-B4], so hold that of one to make it busy.
            absent: ``is_available()`` is False and the runtime does not start ([PRE] text).
            hangs: the first use never returns [USER-B4: hung runs; hard timeouts needed].
            dies: the first use kills the process [USER: SIGSEGV in native code].
        statistics: whether ``_C._get_compilation_cache_stats`` exists. [PRE], private
        copies: whether ``_C`` has the functions that copy to and from the host. [PRE] internals 2.9; nothing
            in a double calls them.
        collect_env: what ``python -m torch_neuronx.collect_env`` prints; its form is in no public source.
        compiler: what becomes of a compiled graph.
        compiler_at: of which graphs: forward ones (those of inference too) or backward ones.
        compiler_from: from which on, counted as they are met.
        more: for tests of what only some of them need; the double hands it on unread.
    """

    product: Literal["native", "legacy", "placeholder", "lookalike"] = "native"
    tracker: bool = True
    records: bool = True
    warns: bool = False
    asynchronous: Literal["unless_blocking", "always"] = "unless_blocking"
    build: Literal["RELEASE", "DEV"] = "RELEASE"
    failing: Mapping[str, Failure] = field(default_factory=dict)
    slow: Mapping[str, float] = field(default_factory=dict)
    device: Literal["works", "absent", "hangs", "dies"] = "works"
    statistics: bool = True
    copies: bool = False
    collect_env: str = "device usable from torch: yes"
    compiler: Compiler = "works"
    compiler_at: Literal["forward", "backward"] = "forward"
    compiler_from: int = 0
    more: Mapping[str, object] = field(default_factory=dict)


BEHAVIOURS: dict[str, Behaviour] = {
    "silent": Behaviour(),
    "loud": Behaviour(warns=True),
    "late": Behaviour(asynchronous="always"),
    "trackerless": Behaviour(tracker=False, statistics=False),
    "deaf": Behaviour(records=False),
    "loud_trackerless": Behaviour(tracker=False, warns=True, statistics=False),
    "development": Behaviour(build="DEV"),
    "complete": Behaviour(copies=True),
    "fails": Behaviour(build="DEV", failing={"aten::gelu": "early", "aten::silu": "child"}),
    "fails_late": Behaviour(asynchronous="always", failing={"aten::gelu": "late"}),
    "loses": Behaviour(asynchronous="always", failing={"aten::gelu": "lost"}),
    "slow": Behaviour(slow={"aten::gelu": 2.5}),
    "absent": Behaviour(device="absent"),
    "hangs": Behaviour(device="hangs"),
    "dies": Behaviour(device="dies"),
    "legacy": Behaviour(product="legacy"),
    "placeholder": Behaviour(product="placeholder"),
    "lookalike": Behaviour(product="lookalike"),
}
