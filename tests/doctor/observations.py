"""Observations put together by hand: what a healthy Trn2 instance would show, and changes of it."""

from __future__ import annotations

from smoketest.doctor.limited import Ended
from smoketest.doctor.observed import (
    Backend,
    Distribution,
    Folder,
    Listing,
    Machine,
    Observed,
    Packages,
    Step,
    Tool,
)

GIB = 2**30

NATIVE = Distribution(
    "torch-neuronx",
    "2.14.3.0.1234",
    (("torch.backends", "torch_neuronx"), ("torch_dynamo_backends", "neuron")),
    ("torch_neuronx",),
)
SDK = (Distribution("neuronx-cc", "2.28.7631.0"), Distribution("nki", "0.7.0"))
TORCH = Distribution("torch", "2.14.0")

PACKAGES = Packages(
    (3, 12, 4),
    (TORCH, NATIVE, *SDK),
    {"torch": ("/v/torch",), "torch_neuronx": ("/v/torch_neuronx",), "neuronxcc": ("/v/neuronxcc",)},
    frozenset({"neuron_dynamo_backend", "collect_env"}),
)
STEPS = (
    Step("import torch", "done", "2.14.0"),
    Step("autoload torch_neuronx", "done", True),
    Step("import torch_neuronx", "done", True),
    Step("torch.device('neuron')", "done", "neuron"),
    Step("torch.neuron", "done", True),
    Step("torch.neuron.is_available()", "done", True),
    Step("torch.neuron.device_count()", "done", 2),
)
MACHINE = Machine("Linux", "x86_64", ("ubuntu", "26.04"), "Ubuntu 26.04 LTS", "Amazon EC2", "trn2.3xlarge", "2.31.7.0")
FOLDERS = tuple(
    Folder(name, path, True, True, True, 200 * GIB)
    for name, path in (
        ("TORCH_NEURONX_NEFF_CACHE_DIR", "/tmp/neff_cache"),
        ("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", "/tmp/local_cache"),
        ("TORCH_NEURONX_DEBUG_DIR", "/tmp/neuron_backend"),
    )
)
WELL = Ended(0, "", "")

HEALTHY = Observed(
    packages=PACKAGES,
    machine=MACHINE,
    backend=Backend(STEPS, WELL),
    neuron_ls=Tool("/opt/aws/neuron/bin/neuron-ls", Ended(0, '[{"neuron_device": 0, "nc_count": 8}]', "")),
    collect_env=Tool("torch_neuronx.collect_env", Ended(0, "Device usable from torch: (form not known)\n", "")),
    folders=Listing(FOLDERS, WELL),
    environ={},
)
LAPTOP = Observed(
    packages=Packages((3, 13, 0), (Distribution("torch", "2.13.0"),), {"torch": ("/v/torch",)}),
    machine=Machine("Darwin", "arm64"),
    backend=Backend(
        (
            Step("import torch", "done", "2.13.0"),
            Step("torch.device('neuron')", "raised", None, "RuntimeError: no such device"),
            Step("torch.neuron", "done", False),
        ),
        WELL,
    ),
    neuron_ls=Tool(None),
    collect_env=Tool(None),
    folders=Listing(FOLDERS, WELL),
    environ={"NEURON_CC_FLAGS": "--auto-cast=none"},
)
