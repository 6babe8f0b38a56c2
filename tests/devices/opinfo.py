"""PyTorch's own operator samples, run on the CPU and on the device, and compared.

    python tests/devices/opinfo.py [--profile packaged] [--samples N] [--jobs N] [NAME ...]

Each op runs in a process of its own, forked before any backward: it may crash without ending the rest. The device has
every kernel PyTorch has for the CPU and no limits, unless told to take the packaged profile: the first proves the
plumbing, the second the fallback. Ends with ``N agree, N excluded, 0 differ, 0 crash``, and with 1 if it does not.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing as mp
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.utils._pytree import tree_leaves, tree_map

# Looks for PyTorch's own test class in the stack at every call for samples: seconds per op within pytest.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None  # type: ignore[attr-defined]

DTYPES = (torch.float32, torch.bfloat16, torch.int64)

CUDA = "CUDA only: no sample runs on the CPU"
SPARSE = "sparse layouts: the device has none"
UNINITIALISED = "uninitialised memory: there is nothing to compare"
BY_PYTORCH = "PyTorch itself refuses the call on any device but the CPU"

EXCLUDED = {
    "jiterator_": CUDA,
    "sparse.": SPARSE,
    "to_sparse": SPARSE,
    "empty": UNINITIALISED,
    "new_empty": UNINITIALISED,
    "tensor_split": BY_PYTORCH,
}
"""Beginnings of names of ops that are left out, and why."""

TOLERANCES = {
    ("nn.functional.scaled_dot_product_attention", torch.float32): (2e-5, 1e-5, "gradients by formula, not autograd"),
    ("nn.functional.scaled_dot_product_attention", torch.bfloat16): (3e-2, 1e-2, "rounded after other steps"),
    ("native_group_norm", torch.bfloat16): (1e-1, 2e-2, "composed of others there: rounded after other steps"),
    ("nn.functional.group_norm", torch.bfloat16): (1e-1, 2e-2, "composed of others there: rounded after other steps"),
    ("nn.functional.linear_cross_entropy", torch.bfloat16): (8e-2, 2e-2, "bfloat16 sums, chunk by chunk"),
}
"""Ops that may differ by more than `torch.testing.assert_close` allows: relative, absolute, and why."""

TIMEOUT = 120
"""Seconds for one op."""

Outcome = tuple[list[Any], list[Tensor | None]] | Exception


def title(op: Any) -> str:
    return f"{op.name} {op.variant_test_name}".strip()


def excluded(op: Any) -> str | None:
    """Why an op is left out; None: it is not."""
    return next((why for start, why in EXCLUDED.items() if op.name.startswith(start)), None)


def _leaves(sample: Any) -> list[Any]:
    return tree_leaves((sample.input, sample.args, sample.kwargs))


def outcome(op: Any, sample: Any, where: str, backward: bool) -> Outcome:
    """Results and gradients of one sample, or the error it ends in."""

    def move(x: Any) -> Any:
        if isinstance(x, Tensor):
            return x.detach().clone().to(where).requires_grad_(x.requires_grad)
        return where if x == "cpu" else torch.device(where) if isinstance(x, torch.device) else x

    torch.manual_seed(0)
    value, args, kwargs = tree_map(move, (sample.input, sample.args, sample.kwargs))
    try:
        out = tree_leaves(op(value, *args, **kwargs))
        differentiable = [t for t in out if isinstance(t, Tensor) and t.requires_grad]
        if not (backward and differentiable):
            return out, []
        total = sum((t.abs() if t.is_complex() else t).sum() for t in differentiable)
        inputs = [t for t in tree_leaves((value, args, kwargs)) if isinstance(t, Tensor) and t.requires_grad]
        return out, list(torch.autograd.grad(total, inputs, allow_unused=True))  # type: ignore[arg-type]
    except Exception as error:  # compared with the CPU's
        return error


def difference(cpu: Outcome, device: Outcome, rtol: float | None = None, atol: float | None = None) -> str | None:
    """What is not as on the CPU; None: all is."""
    if isinstance(cpu, Exception):
        return None if isinstance(device, type(cpu)) else f"the CPU raises {type(cpu).__name__}, the device does not"
    if isinstance(device, Exception):
        return f"{type(device).__name__}: {device}"
    for expected, seen in zip(cpu[0] + cpu[1], device[0] + device[1], strict=True):
        if not isinstance(expected, Tensor):
            if not (seen == expected or seen is None):
                return f"{seen} is not {expected}"
            continue
        if seen is None or seen.device.type != "neuron":
            return f"a result is on {None if seen is None else seen.device}"
        try:
            torch.testing.assert_close(seen.detach().cpu(), expected.detach(), equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError as error:
            return str(error).replace("\n", " ")
    return None


def differences(op: Any, dtype: torch.dtype, samples: int | None) -> Iterator[str | None]:
    """What differs, for each sample of an op in one dtype; nothing where the op does not take it."""
    if dtype not in op.supported_dtypes("cpu"):
        return
    backward = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=backward), samples):
        if not any(isinstance(x, Tensor) or x in ("cpu", torch.device("cpu")) for x in _leaves(sample)):
            continue  # nothing in it says where: the result is on the CPU by right
        rtol, atol, _ = TOLERANCES.get((op.name, dtype), (None, None, ""))
        yield difference(*(outcome(op, sample, where, backward) for where in ("cpu", "neuron")), rtol, atol)


def every_kernel() -> Path:
    """A profile file for a device with every kernel there is for the CPU, and no limits."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    native = {name: "torch_mlir" for name in names if has(name, "CPU") or has(name, "CompositeExplicitAutograd")}
    said = {"name": "everything", "note": "every kernel of the CPU", "source": "this torch", "date": "today"}
    file = Path(tempfile.mkdtemp()) / "everything.json"
    file.write_text(json.dumps({**said, "grade": "EXPORT", "torch_version": torch.__version__, "native": native}))
    return file


def _run(op: Any, samples: int | None, answer: Connection) -> None:
    warnings.simplefilter("ignore")
    compared, first = 0, None
    try:
        for dtype in DTYPES:
            for found in differences(op, dtype, samples):
                compared += 1
                first = first or (found and f"{dtype}: {found}")
    except Exception as error:  # the samples themselves
        first = f"samples: {type(error).__name__}: {error}"
    answer.send((compared, first))


def judge(ops: Iterable[Any], samples: int | None, jobs: int) -> Iterator[tuple[str, str, str]]:
    """(title, ``agree | differ | crash | excluded``, text) of each op."""
    context = mp.get_context("fork")
    running: dict[Connection, tuple[Any, str, float]] = {}
    for op in [*ops, *[None] * jobs]:
        while running and (op is None or len(running) == jobs):
            for ready in wait(list(running), timeout=1):
                process, name, _ = running.pop(ready)  # type: ignore[index, arg-type]
                yield name, *_verdict(ready, process)  # type: ignore[arg-type]
            for receiver, (process, name, since) in list(running.items()):
                if time.monotonic() - since > TIMEOUT:
                    del running[receiver]
                    process.kill()
                    process.join()
                    yield name, "differ", f"not done after {TIMEOUT} s"
        if op is None:
            continue
        why = excluded(op)
        if why is not None:
            yield title(op), "excluded", why
            continue
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(op, samples, sender))
        process.start()
        sender.close()
        running[receiver] = process, title(op), time.monotonic()


def _verdict(receiver: Connection, process: Any) -> tuple[str, str]:
    try:
        compared, difference = receiver.recv()
    except EOFError:
        process.join()
        return "crash", f"exit code {process.exitcode}"
    process.join()
    if difference:
        return "differ", difference[:300]
    return ("agree", f"{compared} samples") if compared else ("excluded", "it takes none of these dtypes")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only these ops")
    parser.add_argument("--profile", choices=["everything", "packaged"], default="everything")
    parser.add_argument("--samples", type=int, help="of each op and dtype; all of them when absent")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()

    import smoketest

    torch.set_num_threads(1)
    smoketest.emulate(None if given.profile == "packaged" else every_kernel(), warn=False)
    say = sys.stdout.write
    counted: Counter[str] = Counter()
    for name, verdict, text in judge(
        [op for op in op_db if not given.names or op.name in given.names], given.samples, given.jobs
    ):
        counted[verdict] += 1
        if verdict != "agree":
            say(f"{verdict:8} {name}: {text}\n")
    say(", ".join(f"{counted[verdict]} {verdict}" for verdict in ("agree", "excluded", "differ", "crash")) + "\n")
    return 1 if counted["differ"] or counted["crash"] else 0


if __name__ == "__main__":
    sys.exit(main())
