"""Reports as the supervisor makes them, one for each way a check can end."""

from __future__ import annotations

import datetime as dt
from typing import Any

from smoketest.config.models import Allow, Gate
from smoketest.findings import Finding, NotChecked, Observation, Report, Site, merge
from smoketest.findings.cost import Plan, cost
from smoketest.findings.fit import Sizes, Steps, estimate
from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    GraphInfo,
    OperatorRow,
    ParityPart,
    Step,
    WorkloadInfo,
)
from smoketest.gate import judge_report
from smoketest.render.scrub import scrub_report

TODAY = dt.date(2026, 12, 1)
PROFILE = "torch-neuronx-prerelease-2026-04"
EMULATED = DeviceInfo(kind="emulated", profile=PROFILE, profile_note="A release may have more kernels.")
NOT_CHECKED = (
    NotChecked(what="parity", why="comparison with the CPU reference is not part of this version"),
    NotChecked(what="neuronx-cc failures", why="the emulated device compiles nothing"),
)
GRAPHS = (
    GraphInfo(id="0", direction="forward", nodes=120, status="lowered", stage="stablehlo"),
    GraphInfo(id="0", direction="backward", nodes=210, status="lowered", stage="stablehlo"),
)


def steps(*roles: str, loss: float | None = 2.5) -> tuple[Step, ...]:
    return tuple(
        Step(index=i, role=role, loss=loss, forward_ms=10.25 + i, backward_ms=20.5 + i, optimizer_ms=3.0 + i)  # type: ignore[arg-type]
        for i, role in enumerate(roles)
    )


def base(name: str, **given: Any) -> Report:
    defaults: dict[str, Any] = {
        "created": "2026-12-01T00:00:00Z",
        "status": "error",
        "exit_code": 5,
        "headline": "",
        "device": EMULATED,
        "environment": Environment(
            python="3.11.9",
            torch="2.13.0",
            torch_mlir="20261001",
            platform="Linux-6.8-x86_64",
            settings={"PYTORCH_JIT": "0", "NEURON_CC_FLAGS": "--cache_dir=/home/alice/cache"},
        ),
        "workload": WorkloadInfo(
            model="GPT2LMHeadModel",
            parameters=7_302_912,
            batch={"input_ids": "i64[4, 128]"},
            optimizer="AdamW",
            training={"steps": 3},
        ),
        "eager": EagerPart(
            status="ran",
            steps=steps("warmup", "timed", "timed", "timed", "traced"),
            op_calls=1234,
            distinct_ops=57,
        ),
        "compile": CompilePart(
            status="ran", graphs=GRAPHS, ops_probed=89, ops_failed=0, ops_unknown=0, graph_breaks=0, recompiles=0
        ),
        "parity": ParityPart(status="skipped", reason="not part of this version"),
        "not_checked": NOT_CHECKED,
        "command": f"smoketest run configs/{name}.yaml --device emulated",
    }
    return Report(name=name, **(defaults | given))


def judged(
    report: Report, gate: Gate | None = None, problem: str | None = None, exit_code: int | None = None
) -> Report:
    result = judge_report(report, gate or Gate(), problem=problem, today=TODAY)
    result = result if exit_code is None else result.model_copy(update={"exit_code": exit_code})
    return scrub_report(result, home="/home/alice", user="alice", host="workstation7")


def seen(op: str, line: int, code: str, grounds: str, calls: int, size: int | None, **given: Any) -> list[Observation]:
    words = {
        "reported": "predicted fallback: people saw it fall back on a device",
        "no_kernel_known": "possible fallback",
    }
    defaults: dict[str, Any] = {
        "called_as": op.partition(".")[0],
        "kind": "unimplemented",
        "phase": "forward",
        "site": Site(file="configs/workloads/equivariant.py", line=line, code=code),
        "shapes": ("f32[144]", "f32[144]"),
        "witnesses": frozenset({"dispatch", "tracker", "warnings"}),
        "exact": True,
        "message": f"{words.get(grounds, 'predicted')}: the pre-release operator list has no kernel for {op}.",
    }
    return [
        Observation(
            **({"rule": "NST101"} | defaults | given),
            op=op,
            grounds=grounds,  # type: ignore[arg-type]
            module=f"interactions.{i}.angles",
            calls=calls,
            bytes=size,
        )
        for i in range(3)
    ]


def clean() -> Report:
    rows = (
        OperatorRow(op="aten::mm", eager="device", compile="lowers", calls_per_step=36),
        OperatorRow(op="aten::view", eager="device", compile="lowers", calls_per_step=80),
    )
    sizes = Sizes(7_302_912, 29_211_648, 64, 29_211_648, 58_423_296, "AdamW")
    fit = estimate(sizes, Steps(31_457_280, 0, 61, 0), built=True, host_bytes=116_846_656, host_limit=16 * 2**30)
    report = base("gpt2", operators=rows, fit=fit)
    return judged(report.model_copy(update={"cost": cost(report.device, report.eager, report.findings)}))


def equivariant_findings() -> tuple[Finding, ...]:
    return merge(
        [
            *seen("aten::atan2.out", 41, "azimuth = torch.atan2(edges[:, 1], edges[:, 0])", "reported", 1, 1728),
            *seen("aten::atan2.out", 41, "azimuth = torch.atan2(edges[:, 1], edges[:, 0])", "reported", 1, 1728)[:1],
            *seen("aten::sort.values_stable", 21, "_, order = torch.sort(distances, dim=1)", "reported", 1, 1_500_000),
            *seen(
                "aten::index_fill_.int_Scalar", 90, "weights.index_fill_(0, ghosts, 0.0)", "reported", 1, 5_000_000,
                called_as="aten::index_fill_.int_Scalar",
            ),
            *seen("aten::native_batch_norm", 77, "return self.norm(x)", "no_kernel_known", 2, 4096, exact=False),
            *seen("aten::uniform_", 12, "nn.init.uniform_(w)", "reported", 1, None, phase="setup"),
            Observation(
                "NST201", op="aten::lgamma", phase="forward", grounds="cannot_lower", calls=2, exact=True,
                site=Site(file="configs/workloads/equivariant.py", line=95, code="x = torch.lgamma(x)"),
                stage="torch-backend", witnesses=frozenset({"lowering"}), module="",
                message="torch-mlir: failed to legalize operation 'torch.operator'",
            ),
            Observation(
                "NST201", op="aten::erfinv", phase="backward", grounds=None, calls=1, exact=True,
                site=Site(file="configs/workloads/equivariant.py", line=96, code="x = torch.erfinv(x)"),
                stage="torch-backend", witnesses=frozenset({"lowering"}), module="head",
                message="public torch-mlir refuses it; the profile lists a kernel, so a release may lower it",
            ),
            Observation(
                "NST204", phase="forward", calls=1, message="call to .item() on a tensor",
                site=Site(file="configs/workloads/equivariant.py", line=99, code="n = mask.sum().item()"),
            ),
            Observation("NST101", op="aten::roll", grounds="no_kernel_known", exact=False, message="possible fallback",
                        witnesses=frozenset({"tracker"}), kind="unknown"),
        ]
    )  # fmt: skip


def equivariant() -> Report:
    gate = Gate(
        allow=[
            Allow(op="aten::index_fill*", reason="two atoms", ticket="MIG-12", expires=dt.date(2027, 3, 31)),
            Allow(op="aten::sort*", reason="small", max_bytes_per_step=4096),
            Allow(op="aten::roll", reason="old", expires=dt.date(2026, 1, 1)),
        ]
    )
    moving = ("aten::mm on f32[8, 96], f32[96, 96], after f32[6, 96], f32[96, 96]",)
    return judged(
        base(
            "equivariant",
            findings=equivariant_findings(),
            fit=estimate(
                Sizes(4096, 16_384, 0, 16_384, None, "Shampoo", "it has no state"),
                Steps(100_000, 2, 40, 7, moving),
                built=True,
                host_bytes=32_768,
                host_limit=None,
            ),
            cost=cost(
                EMULATED, EagerPart(status="ran", steps=steps("traced")), equivariant_findings(), Plan(10_000, 21.5)
            ),
            compile=CompilePart(
                status="ran",
                graphs=GRAPHS,
                ops_probed=42,
                ops_failed=1,
                ops_unknown=1,
                graph_breaks=1,
                skipped_frames=0,
            ),
        ),
        gate,
    )


def crashed() -> Report:
    reason = "crashed with SIGKILL in step 2 (timed), backward, after aten::convolution_backward in stem.conv"
    return judged(
        base(
            "resnet",
            eager=EagerPart(status="crashed", reason=reason, steps=steps("warmup", "timed")),
            compile=CompilePart(status="skipped", reason="the eager part crashed before it"),
            findings=merge(seen("aten::native_batch_norm", 7, "x = self.bn(x)", "no_kernel_known", 1, 2048)),
        ),
        problem=f"the eager part {reason}",
        exit_code=5,
    )


def interrupted() -> Report:
    return judged(
        base(
            "bert",
            eager=EagerPart(status="skipped", reason="interrupted by Ctrl-C", steps=steps("warmup")),
            compile=CompilePart(status="skipped", reason="interrupted by Ctrl-C"),
        ),
        problem="interrupted in step 1 (timed), forward",
        exit_code=130,
    )


def user_error() -> Report:
    reason = "/home/alice/work/model.py:12: ValueError: shapes (3,) and (4,) do not fit"
    return judged(
        base(
            "mine",
            device=DeviceInfo(kind="cpu"),
            eager=EagerPart(status="failed", reason=reason),
            compile=CompilePart(status="skipped", reason="the model does not run on plain CPU"),
            workload=WorkloadInfo(),
        ),
        problem="the user's own code fails: " + reason,
        exit_code=4,
    )


def ranks() -> Report:
    """Four ranks, of which the second one alone met an op."""
    everywhere, alone = equivariant_findings()[:2]
    losses = (2.25, 2.5, 2.75, 2.5)
    made = tuple(step.model_copy(update={"loss_by_rank": losses}) for step in steps("warmup", "timed", "traced"))
    workload = base("ranks").workload.model_copy(update={"parallel": {"kind": "fsdp2", "nproc": 4}})
    return judged(
        base(
            "ranks",
            ranks=4,
            workload=workload,
            eager=EagerPart(status="ran", steps=made, op_calls=5210, distinct_ops=61),
            findings=(everywhere, alone.model_copy(update={"ranks": (1,)})),
            operators=(
                OperatorRow(op="aten::mm", eager="device", compile="lowers", calls_per_step=40),
                OperatorRow(op="aten::sort.stable", eager="cpu", compile="fails", calls_per_step=2, ranks=(1, 3)),
                OperatorRow(op="c10d::_allgather_base_", eager="device", compile="not_reached", calls_per_step=7),
            ),
        )
    )


EVIL = (
    "`code` ``x`` ```\n# Heading | cell | <script>alert(1)</script> <!-- --> [link](http://evil) ![i](x) **bold** "
    "@alice #12 \x1b[31mred\x1b]8;;http://evil\x07 \u202egnp.exe \u200b\x00 \r\n| new | row |\n</details>"
    " &lt; $x$ ~~s~~"
)


def hostile() -> Report:
    finding = merge(
        [
            Observation(
                "NST101",
                op="aten::`|<b>",
                called_as=EVIL,
                kind="rejected",
                grounds="measured",
                phase="forward",
                site=Site(file=f"dir|{EVIL}.py", line=1, code=EVIL),
                module=EVIL,
                shapes=(EVIL,),
                calls=1,
                witnesses=frozenset({EVIL}),
                stage=EVIL,
                message=EVIL,
                remedy=EVIL,
            )
        ]
    )
    return judged(
        base(
            EVIL,
            device=DeviceInfo(kind="emulated", profile=EVIL, profile_note=EVIL),
            environment=Environment(python=EVIL, platform=EVIL, settings={"NEURON_X": EVIL, EVIL: EVIL}),
            workload=WorkloadInfo(model=EVIL, optimizer=EVIL),
            eager=EagerPart(status="failed", reason=EVIL, continued_past=(EVIL,)),
            findings=finding,
            not_checked=(NotChecked(what=EVIL, why=EVIL),),
            command=EVIL,
        ),
        problem=EVIL,
    )


SAMPLES = {
    function.__name__: function for function in (clean, equivariant, crashed, interrupted, user_error, ranks, hostile)
}

TEXTS = (
    EVIL,
    "<img src=x onerror=alert(1)>\"' autofocus onfocus=alert(1) x='",
    "]]></script><script>alert(1)</script><style>*{display:none}</style>-->",
    "{{ 7*7 }}{% raw %}${1}`${alert(1)}`",
    "javascript:alert(1) http://evil.example/x.png //evil.example",
    "".join(map(chr, range(32))) + "\x7f\x80\x9f\ufeff\u2028\u2029\ufffe\U000e0041",
    "שלום עולם x = f(y) مرحبا بالعالم 123",
    "\u202eevil\u202c \u2066x\u2069 \u200f\u200e",
    "漢字かな한글 " * 20,
    "word" * 2500,
    "a b " * 2500,
    "",
)
"""What names, messages and lines of source can hold."""


def large(count: int = 500, texts: tuple[str, ...] = TEXTS) -> Report:
    """Very many findings of hostile texts in every field, with parts missing here and there."""

    def text(number: int) -> str:
        return texts[number % len(texts)]

    findings = merge(
        Observation(
            ("NST101", "NST201", "NST204", "NST104")[i % 4],
            op=None if i % 4 == 2 else f"aten::op{i}{text(i)[:9_000]}",
            called_as=text(i + 1),
            kind=None if i % 5 == 0 else "unimplemented",
            phase=(None, "setup", "forward", "backward", "optimizer")[i % 5],  # type: ignore[arg-type]
            grounds=(None, "measured", "reported", "no_kernel_known")[i % 4 - 1],  # type: ignore[arg-type]
            site=None if i % 7 == 0 and i % 4 != 2 else Site(file=f"{text(i + 2)}.py", line=i, code=text(i + 3)),
            module=None if i % 3 == 0 else text(i + 4),
            shapes=() if i % 6 == 0 else (text(i + 5),),
            calls=None if i % 11 == 0 else i,
            exact=(None, True, False)[i % 3],
            bytes=None if i % 2 else 1000 * i,
            witnesses=frozenset({text(i + 6)}),
            stage=text(i + 7),
            message=text(i + 8),
            remedy=text(i + 9),
        )
        for i in range(count)
    )
    rows = tuple(
        OperatorRow(
            op=f"aten::op{i}{text(i)}",
            eager=("device", "cpu", "mixed", "failed", "not_reached")[i % 5],  # type: ignore[arg-type]
            compile=("lowers", "fails", "unknown", "decomposed", "not_reached")[i // 5 % 5],  # type: ignore[arg-type]
            calls_per_step=None if i % 3 == 0 else i,
        )
        for i in range(count)
    )
    report = base(
        texts[0],
        findings=findings,
        operators=rows,
        workload=WorkloadInfo(batch={entry: entry for entry in texts}, training={"x": None, **dict.fromkeys(texts, 1)}),
        eager=EagerPart(status="crashed", reason="\n".join(texts), steps=steps("warmup", "timed", loss=None)),
        not_checked=tuple(NotChecked(what=entry, why=entry) for entry in texts),
        environment=Environment(settings={entry: entry for entry in texts}),
        command=" ".join(texts)[:20_000],
    )
    return judged(report, problem=texts[0])
