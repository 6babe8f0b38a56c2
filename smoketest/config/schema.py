"""JSON Schema of a check, for editors: keys, types and what each key is for.

An editor that speaks YAML takes it from a first line such as ``# yaml-language-server: $schema=check.schema.json``. The
schema says what a file alone can tell; whether files and names in it are there is `load.py`'s work.
"""

from __future__ import annotations

from typing import Any, get_args

from pydantic.json_schema import GenerateJsonSchema

from smoketest.config.models import Check, ParallelKind

__all__ = ["check_schema"]

_NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_RULE = r"^NST\d{3}$"

_KEYS = {
    "Check": {
        "name": "Name of the check and of its folder under reports/; the file's name by default.",
        "workload": "A Python file that defines make_model, make_batch, loss_fn and so on. Relative to this file.",
        "model": "What makes the module.",
        "batch": "What the model is trained on: a target, random tensors, or a data loader.",
        "loss": "A path into the output (output.loss), a target, or a mapping that names a function of"
        " torch.nn.functional.",
        "optimizer": "AdamW by default.",
        "train_step": "A target train_step(model, batch, optimizers) -> loss, which replaces the whole step.",
        "training": "How many steps, and how one is made.",
        "parallel": "How the step is spread over several processes; ddp, fsdp2 or tp for short.",
        "device": "auto: the real device where torch-neuronx is usable, else the emulated one.",
        "profile": "An operator profile (JSON) for the emulated device, instead of the packaged one.",
        "compile": "The compile probe: what fails under torch.compile(backend='neuron', dynamic=False).",
        "parity": "The comparison with plain CPU.",
        "witnesses": "Which witnesses are heard; all by default.",
        "gate": "What is denied, what only warned of, what is allowed.",
    },
    "Model": {
        "target": "package.module:callable, or path/to/file.py:callable; called with args and kwargs.",
        "config": "Built first and passed as the first argument: class, and its keyword arguments beside it.",
        "args": "Positional arguments.",
        "kwargs": "Keyword arguments.",
        "dtype": "Of the weights; as the model makes them by default.",
    },
    "Batch": {
        "target": "A callable make_batch(step) -> (args, kwargs).",
        "tensors": "Random tensors by name.",
        "loader": "A DataLoader or any iterable of batches, or a callable that makes one.",
        "sample": "How many of the loader's batches are looked at for their shapes, without running the model.",
        "names": "Names for the items of the loader's batches, where these are lists or tuples.",
        "forward": "Names of what the model is called with; the rest is the loss's. All by default.",
    },
    "TensorSpec": {
        "shape": "Sizes, such as [4, 128].",
        "dtype": "float32 by default.",
        "low": "Smallest value.",
        "high": "Values are below it; integers need it (for token ids, the size of the vocabulary).",
        "like": "Name of another tensor whose values this one has.",
    },
    "Loss": {
        "name": "A function of torch.nn.functional, such as cross_entropy.",
        "input": "Its first argument: a path such as output.logits.",
        "target": "Its second argument: a path such as batch.labels.",
        "kwargs": "Its keyword arguments.",
    },
    "Optimizer": {
        "name": "A class of torch.optim; its keyword arguments stand beside this key.",
        "target": "A callable make_optimizer(params) or make_optimizer(model).",
    },
    "Training": {
        "steps": "Timed steps; one traced step comes after them.",
        "warmup": "Steps before the timed ones.",
        "seed": "Of the random numbers.",
        "autocast": "Run forward and loss under torch.autocast with this dtype.",
        "clip_grad_norm": "Clip the norm of the gradients to this.",
        "accumulate": "Batches per optimizer step.",
        "timeout": "Seconds for the whole eager part.",
    },
    "Parallel": {
        "kind": "ddp: a whole model on each rank; fsdp2: sharded by fully_shard; tp: weights split by a plan.",
        "nproc": "How many ranks, 2 by default; --nproc overrides it.",
        "mixed_precision": "fsdp2: dtype of computation and communication.",
        "cpu_offload": "fsdp2: keep the shards on the host.",
        "plan": "tp: for globs of modules, how their weights are split; the model's own plan by default.",
        "layers": "fsdp2: glob of the modules sharded one by one; the children of every ModuleList by default.",
        "split": "ddp, fsdp2: names (in a tuple: positions) of what in the batch is split; the rest is whole.",
    },
    "Compile": {
        "enabled": "Whether to run the compile probe.",
        "fullgraph": "Whether a graph break is an error.",
        "timeout": "Seconds for the whole probe.",
        "op_timeout": "Seconds for lowering one op.",
    },
    "Parity": {
        "enabled": "Whether to compare with plain CPU.",
        "rtol": "Share of a tensor's size that it may differ by; by default 1e-4 in float32, 4e-3 in float16, 2e-2"
        " in bfloat16.",
        "atol": "What each value may differ by besides.",
        "rounding": "How many times the effect of a rounding error in every parameter a tensor may differ by.",
        "timeout": "Seconds for all of it.",
    },
    "Allow": {
        "op": "Glob of the op, such as aten::sort*.",
        "rule": "A rule, such as NST101.",
        "phase": "Where in the step.",
        "site": "Glob of the file.",
        "module": "Glob of the module.",
        "reason": "Why it is accepted; shown in reports.",
        "ticket": "Where it is tracked.",
        "expires": "A date after which it counts again, as in 2027-03-31.",
        "max_calls_per_step": "Accepted up to so many calls.",
        "max_bytes_per_step": "Accepted up to so many bytes to and from the host.",
    },
    "Gate": {
        "fallback": "Ops that run on the CPU (NST101).",
        "hidden": "Host work inside an op that counts as native (NST102).",
        "host_sync": "The device waits for the host (NST103).",
        "op_failed": "Ops that raise (NST104).",
        "non_finite": "A loss or gradient that is not finite (NST105).",
        "parity": "Results that differ from the CPU's (NST106, NST208).",
        "moved": "A model changed by moving it (NST107).",
        "lowering": "Ops and graphs that fail lowering (NST201, NST202, NST203).",
        "graph_break": "Graph breaks and skipped frames (NST204).",
        "recompile": "A function is compiled again (NST205).",
        "dynamic_shape": "Dynamic or data-dependent shapes (NST206).",
        "compiler_limit": "Documented limits of the compiler (NST207).",
        "environment": "What is wrong with the environment (NST301 to NST304).",
        "allow": "Findings that are accepted, one entry each.",
        "baseline": "A baseline file to compare with.",
    },
    "Witnesses": {
        "tracker": "The device's own list of ops that ran on the CPU.",
        "registry": "PyTorch's table of the backend's kernels: whether an op has one (on a real device).",
        "dispatch": "A dispatch mode in the traced step: lines, modules, counts, host synchronisation.",
        "kernels": "The emulated device's own kernels: exact counts.",
        "warnings": "Python warnings, log records, and what the backend prints.",
        "copies": "One more step on a real device, recorded by PyTorch: copies inside native ops.",
        "strict": "One more step in a process where the device may not recover: why an op with a kernel fell back.",
    },
}

_NEEDS: dict[str, list[dict[str, Any]]] = {
    "Check": [{"anyOf": [{"required": ["model"]}, {"required": ["workload"]}]}],
    "Batch": [
        {"not": {"required": ["target", "tensors"]}},
        {"anyOf": [{"required": ["target"]}, {"required": ["tensors"]}, {"required": ["forward"]}]},
    ],
    "TensorSpec": [{"oneOf": [{"required": ["shape"]}, {"required": ["like"]}]}],
    "Allow": [{"anyOf": [{"required": [key]} for key in ("op", "rule", "phase", "site", "module")]}],
}
"""What the parts owe beyond the types of their keys, as far as a schema can say it (see `rules.py`)."""


def check_schema() -> dict[str, Any]:
    """The schema of a check's YAML, as JSON Schema 2020-12."""
    schema = Check.model_json_schema(schema_generator=_Generator)
    for name, part in [("Check", schema), *schema["$defs"].items()]:
        for key, text in _KEYS[name].items():
            part["properties"][key]["description"] = text
        if name in _NEEDS:
            part["allOf"] = _NEEDS[name]
    schema["properties"]["name"]["pattern"] = _NAME
    schema["required"] = [key for key in schema.get("required", []) if key != "name"]
    rule = schema["$defs"]["Allow"]["properties"]["rule"]
    rule["anyOf"][0]["pattern"] = _RULE
    schema["$defs"]["Model"]["properties"]["config"]["anyOf"][0] |= {
        "required": ["class"],
        "properties": {"class": {"type": "string", "description": "package.module:Class, or path/to/file.py:Class."}},
    }
    long = schema["properties"]["parallel"]["anyOf"]
    long.insert(0, {"enum": list(get_args(ParallelKind))})  # the short form, see `load.py`
    schema["title"] = "A check of smoketest"
    return {"$schema": _Generator.schema_dialect, **schema}


class _Generator(GenerateJsonSchema):
    """Without titles made of field names, which editors would show in place of descriptions."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False
