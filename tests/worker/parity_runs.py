"""Steps on the emulated device and their comparison with plain CPU, many runs in one process. For test_parity.py.

As a script it is the long form: ``python tests/worker/parity_runs.py SEEDS`` trains GPT-2, Llama, T5, ViT and ResNet
in float32, with bfloat16 weights and under bfloat16 autocast, with six optimizers, from so many seeds each, and says of
each run that raised anything. ``make parity`` runs it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from smoketest.config.models import Check
from smoketest.devices.base import open_device
from smoketest.devices.cpu import CpuDevice
from smoketest.devices.emulated.adapter import EmulatedAdapter
from smoketest.findings import SitePolicy
from smoketest.witness.context import Context
from smoketest.worker import reference
from smoketest.worker.again import StepAgain
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job
from smoketest.workload import build
from smoketest.workload.workload import loss_value

_SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 64}
_IDS = {"input_ids": {"shape": [4, 24], "dtype": "int64", "low": 1, "high": 64}}
_IMAGES = {
    "pixel_values": {"shape": [8, 3, 32, 32]},
    "labels": {"shape": [8], "dtype": "int64", "low": 0, "high": 5},
}
_SPECIAL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}

MODELS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32, **_SPECIAL},
        {**_IDS, "labels": {"like": "input_ids"}},
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**_SMALL, "num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 32, **_SPECIAL},
        {**_IDS, "labels": {"like": "input_ids"}},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {"num_layers": 2, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_heads": 2, "vocab_size": 64,
         "decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1},
        {**_IDS, "labels": {"shape": [4, 16], "dtype": "int64", "low": 1, "high": 64}},
    ),
    "vit": (
        "ViTForImageClassification",
        "ViTConfig",
        {**_SMALL, "image_size": 32, "patch_size": 8, "num_labels": 5},
        _IMAGES,
    ),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 2], "layer_type": "basic", "num_labels": 5},
        _IMAGES,
    ),
}  # fmt: skip
PRECISIONS: dict[str, tuple[str, str | None]] = {
    "float32": ("float32", None),
    "bfloat16": ("bfloat16", None),
    "autocast": ("float32", "bfloat16"),
}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    f"{name} {how}": {"name": name, "fused": how == "fused", "foreach": how == "foreach", **options}
    for name, options in (("AdamW", {"lr": 1e-3}), ("SGD", {"lr": 1e-2, "momentum": 0.9}))
    for how in ("plain", "foreach", "fused")
}


def check_for(model: str, precision: str, optimizer: str, seed: int = 0, **parts: Any) -> dict[str, Any]:
    target, config, options, tensors = MODELS[model]
    dtype, autocast = PRECISIONS[precision]
    if "pixel_values" in tensors:
        tensors = {**tensors, "pixel_values": {**tensors["pixel_values"], "dtype": dtype}}
    return {
        "name": f"{model}-{precision}",
        "model": {
            "target": f"transformers:{target}",
            "config": {"class": f"transformers:{config}", **options},
            "dtype": dtype,
        },
        "batch": {"tensors": tensors},
        "loss": "output.loss",
        "optimizer": OPTIMIZERS[optimizer],
        "training": {"steps": 3, "seed": seed, "autocast": autocast, "clip_grad_norm": 1.0},
        **parts,
    }


def compare(
    check: dict[str, Any], device: EmulatedAdapter, fault: tuple[str, str] | None = None, steps: int | None = None
) -> dict[str, Any]:
    """Make the check's steps on the device, with one kernel wrong if asked for, and have the reference judge them."""
    events: list[Any] = []
    with contextlib.ExitStack() as open_files:
        state, record, crumb = (open_files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        job = Job(
            check=Check.model_validate(check), device=device, policy=SitePolicy(Path.cwd()),
            environment=read_environment({}), emit=events.append,
            breadcrumb=BreadcrumbFile(Path(f"/dev/fd/{crumb.fileno()}")),
            state_file=Path(f"/dev/fd/{state.fileno()}"), record_file=Path(f"/dev/fd/{record.fileno()}"),
        )  # fmt: skip
        last = job.check.training.warmup + job.check.training.steps
        if fault is not None:
            device.device.inject_fault(*fault)
        try:
            workload = build(job.check, device)
            workload.make_batch(0)
            losses = [loss_value(workload.step(index)) for index in range(last)]
            with StepAgain(job, workload, last, Context(), contextlib.nullcontext) as again:
                losses.append(loss_value(workload.step(last)))
                again.record(losses)
        finally:
            device.device.inject_failure(None)
        reference.run(_on_cpu(job))
    (part,) = [event.parity for event in events if event.event == "result"]
    found = [finding for event in events if event.event == "findings" for finding in event.findings]
    return {
        "status": part.status,
        "reason": part.reason,
        "error": part.max_relative_error,
        "tensors": part.tensors,
        "findings": [finding.model_dump(by_alias=True) for finding in found],
        "notes": [event.not_checked.why for event in events if event.event == "note"],
    }


def _on_cpu(job: Job) -> Job:
    names = ("check", "policy", "environment", "emit", "breadcrumb", "state_file", "record_file")
    return Job(device=CpuDevice(), **{name: getattr(job, name) for name in names})


def quiet() -> EmulatedAdapter:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    device = open_device("emulated", warn=False)
    assert isinstance(device, EmulatedAdapter)
    return device


def main(seeds: int) -> int:
    """The long form. Returns how many runs raised something, or were not compared."""
    device, bad = quiet(), 0
    for model, precision, optimizer in itertools.product(MODELS, PRECISIONS, OPTIMIZERS):
        worst, tensors, started = 0.0, 0, time.perf_counter()
        for seed in range(seeds):
            seen = compare(check_for(model, precision, optimizer, seed), device)
            worst, tensors = max(worst, seen["error"] or 0.0), seen["tensors"] or 0
            if seen["status"] != "ran" or seen["findings"] or not seen["tensors"]:
                bad += 1
                print(f"  seed {seed}: {json.dumps(seen)}", flush=True)  # noqa: T201
        each = (time.perf_counter() - started) / seeds
        text = f"{tensors} tensors, largest error of a loss {worst:.1e}, {each:.1f} s a run"
        print(f"{model} {precision} {optimizer}: {text}", flush=True)  # noqa: T201
    print(f"{bad} runs raised something")  # noqa: T201
    return bad


if __name__ == "__main__":
    if sys.argv[1].isdigit():
        sys.exit(min(1, main(int(sys.argv[1]))))
    device = quiet()
    with contextlib.redirect_stdout(sys.stderr):
        asked = json.loads(Path(sys.argv[1]).read_text())
        answers = [compare(one["check"], device, one.get("fault")) for one in asked]
    print(json.dumps(answers))  # noqa: T201
    sys.stdout.flush()
    os._exit(0)
