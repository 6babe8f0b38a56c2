"""What is known about a machine that runs on device ``neuron``, as data; every entry says where it is from.

Grades of evidence: [PUB] Amazon's documentation of SDK 2.33; [PUB-2.32] of SDK 2.32; [USER] seen by somebody on a real
device; [PRE] a pre-release source tree of April 2026; [INFER] concluded from these; [OWN] decided here.
Nothing in this file was seen on a Trainium by its authors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from smoketest.extras import NEURONX, NEURONX_INDEX

# --- torch-neuronx: releases and how to tell them apart --------------------------------------------------------------

FIRST, LIMIT = (2, 13, 3), (2, 15)
"""Native releases this package drives: from 2.13.3 up to, not with, 2.15. [PUB] release notes: 2.13.3.0, 2.14.3.0."""

NATIVE_VERSION = re.compile(r"2\.1\d\.3\.")
"""[INFER] from [PUB] 2.13.3.0, 2.14.3.0 and [USER] betas 2.11.3.0, 2.12.3.0."""
LEGACY_VERSION = re.compile(r"(1\.\d+|2\.\d)\.\d+\.2\.\d+")
"""[INFER] from [PUB] component list of SDK 2.33.0: "PyTorch NeuronX (legacy XLA) 2.9.0.2.15.32035", and
[PUB-2.32] that PyTorch 2.9 is its last."""
PLACEHOLDER_VERSION = re.compile(r"1\.0(\.0)?$")
"""[INFER] the only release of torch-neuronx on PyPI, of 2022; the wheels are on Amazon's own index."""

NATIVE_MODULES = ("neuron_dynamo_backend",)
"""[PRE] and [USER] beta 3; [PUB] keywords of the API page ("neuron_dynamo_backend helper API")."""
LEGACY_MODULES = ("xla_impl", "pyhlo")
"""[INFER] from what the XLA-based product has and beta 3 has not [USER canallee]."""
SUBMODULES = (*NATIVE_MODULES, *LEGACY_MODULES, "collect_env")

AUTOLOAD_GROUP, DYNAMO_GROUP = "torch.backends", "torch_dynamo_backends"
"""[PRE] pyproject of torch-neuronx; [PUB] "import torch_neuronx not needed (autoload)"."""

XLA = ("torch-xla", "libneuronxla")
"""What the XLA-based product needs; it and the native one cannot share an environment ([USER], [PUB-2.32] notice)."""
LOOKALIKES = ("libtorch-neuronx-lite",)
"""Renames PrivateUse1 to ``neuron`` too: the device's name then works without torch-neuronx. [USER] Difflet plan."""

ABSENT = "torch-neuronx is not installed"
"""What is said where nothing goes by the name."""

INSTALL, INDEX = NEURONX, NEURONX_INDEX

QUICKSTART = "Amazon's TorchNeuron quickstart"

DISTRIBUTIONS = ("torch", "torch-neuronx", *XLA, *LOOKALIKES, "torch-mlir", "neuronx-cc", "nki")
MODULES = ("torch", "torch_neuronx", "torch_mlir", "neuronxcc", "nki")

# --- Python, torch ---------------------------------------------------------------------------------------------------

WHEEL_PYTHONS = ((3, 12), (3, 13), (3, 14))
"""[PUB] release notes. The best-practices page says 3.10 to 3.14: the documents disagree, the wheels decide."""

TORCH_FIRST, TORCH_LIMIT = (2, 13), (2, 16)
"""[OWN] what this package is tested with; its own requirement."""


@dataclass(frozen=True)
class Pair:
    """A torch-neuronx release line (its first three numbers) and the torch release it is built for."""

    neuronx: tuple[int, ...]
    torch: str


PAIRS = (Pair((2, 13, 3), "2.13.0"), Pair((2, 14, 3), "2.14.0"))
"""[PUB] release notes of SDK 2.33.0."""


# --- what comes with it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Component:
    """A part of SDK 2.33.0, the release this package was written for."""

    name: str
    version: str


COMPILER = Component("neuronx-cc", "2.28.7631.0")
NKI = Component("nki", "0.7.0")
DRIVER = Component("driver", "2.31.7.0")
"""These three: [PUB] component list of SDK 2.33.0."""

NEURON_LS = "neuron-ls"
NEURON_LS_ARGUMENTS = ("--json-output",)
"""[PUB] user guide of neuron-ls. What it prints then is in no public document: [USER] a capture of a trn1.2xlarge and
scripts for a trn2 read a list with an object for each device, with ``nc_count`` (physical cores),
``logical_neuroncore_config`` (how many make a logical one, newer releases) and ``neuron_processes``."""
NEURON_LS_FOLDER = "/opt/aws/neuron/bin"
"""[USER] where several public scripts call it by its path; it need not be on PATH."""
DRIVER_MODULE = "sys/module/neuron"
"""[USER] several public scripts read the driver's version from /sys/module/neuron/version."""

NO_INSTANCE_INFORMATION = "Failed to get Neuron instance information"
"""What neuron-ls says in a container that was given no device. [USER-B4]"""
CONTAINER = "in a container give it the devices: `docker run --device=/dev/neuron0 ...`, or `--privileged`."
"""[PUB] Amazon's tutorial on Neuron containers, which was written for Inf1 and Trn1, has ``--device=/dev/neuron0``;
[INFER] that it is the same on a Trn2, and that a machine with more devices names each. [USER-B4] says "device access or
--privileged"."""
BUSY = re.compile(r"Logical Neuron Core\(s\) not available|cores busy", re.IGNORECASE)
"""What opening a device says while another process holds its cores. [USER-B4]"""
COLLECT_ENV_LINE = "device usable from torch"
"""A line `python -m torch_neuronx.collect_env` is said to have. Its form is in no public source we know of."""

# --- machine ---------------------------------------------------------------------------------------------------------

INSTANCES = re.compile(r"trn[23][a-z0-9-]*\.")
"""[PUB] Trn2 and Trn3 only, such as trn2.3xlarge, trn2.48xlarge."""
OTHER_NEURON_INSTANCES = re.compile(r"(trn1|inf[12])[a-z]*\.")
VENDOR = "Amazon EC2"
"""In DMI's sys_vendor; product_name is then the instance type. [INFER] from other EC2 instances, not seen on a Trn2."""

SYSTEM, ARCHITECTURES = "Linux", ("x86_64", "amd64")
"""[PUB] Linux x86_64."""

WHEEL_SYSTEM = ("ubuntu", "26.04")
"""The one system with standalone wheels. [PUB] release v2.33.0 on GitHub, quickstart of 2.33.1."""
OTHER_SYSTEMS = {
    ("ubuntu", "24.04"): "use Amazon's single-framework image (DLAMI) for it, or build torch-neuronx from source",
    ("ubuntu", "22.04"): "its support has ended: use Ubuntu 26.04, or build torch-neuronx from source",
}  # fmt: skip
"""[PUB] release notes and quickstart of 2.33.1."""


# --- settings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """An environment variable that changes what a run measures or shows (NST304).

    Attributes:
        name: of the variable.
        effect: what a value other than the harmless ones does.
        harmless: values, in lower case, that change nothing a run looks at.
    """

    name: str
    effect: str
    harmless: tuple[str, ...] = ()


_OFF = ("0", "false", "")
_ON = ("1", "true")

SETTINGS = (
    # [PRE] python_ops/base.py, ErrorRecovery.cpp; that ops without a kernel fall back all the same: [USER-B4]
    Setting("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS",
            "an op that has a kernel raises when it fails, instead of falling back to the CPU; ops without a kernel "
            "fall back all the same", _OFF),
    Setting("NEURON_FALLBACK_ENABLED",
            "an op whose compilation or execution fails in the asynchronous pipeline is not run on the CPU", _ON),
    # [PRE] _build_config.py: the default depends on the build
    Setting("NEURON_LAUNCH_BLOCKING",
            "with 1 every op is waited for, with 0 none: step times differ, and with 0 an error shows at a later op"),
    # [PUB] env-vars page
    Setting("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION",
            "a compiled graph that fails runs eagerly without a word, and looks as if it had compiled", _ON),
    Setting("TORCH_NEURONX_COMPLEX_DECOMPOSE",
            "decides whether complex ops are decomposed before lowering, and so which ops fail"),
    # [PUB] env-vars page (name), [PRE] (meaning)
    Setting("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY",
            "a CPU input of a compiled graph raises instead of being copied to the device", _OFF),
    # [PRE] docs/environment_variables.md and the tree, down to the end of this table unless said otherwise
    Setting("TORCH_NEURONX_RETAIN_DEVICE_MODE", "outputs of compiled graphs stay on the device they came from", _OFF),
    Setting("TORCH_NEURONX_NEURONX_CC_TIMEOUT", "a compilation that takes longer fails"),
    Setting("TORCH_NEURONX_ENABLE_NKI_SDPA", "attention does not use the NKI kernel", _ON),
    Setting("NEURON_CC_FLAGS", "flags of the compiler: they change its numerics, time and failures", ("",)),
    Setting("NEURON_COMPILER_OPT_LEVEL", "another optimisation level of the compiler: other times", ("-o1",)),
    Setting("TORCH_NEURONX_NEFF_DISABLE_CACHE", "every graph is compiled again: times include compilation", _OFF),
    Setting("TORCH_NEURONX_DISABLE_NEFF_CACHE", "every graph is compiled again: times include compilation", _OFF),
    Setting("TORCH_NEURONX_MLIR_ATEN_OPS", "ops are lowered by the older registries instead of torch-mlir", _ON),
    Setting("TORCH_NEURONX_ENABLE_ASYNC_NRT", "the runtime executes synchronously: other step times", _ON),
    Setting("TORCH_NEURONX_ENABLE_CONCATENATION", "ops are fused, and the tracker shows fused names", _OFF),
    Setting("TORCH_NEURONX_ENABLE_PROLOGUE", "views are folded into the op that follows", _OFF),
    Setting("TORCH_NEURONX_SKIP_OP_PRECONDITIONS", "bounds checks, which wait for the device, are left out", _OFF),
    Setting("TORCH_NEURONX_ENABLE_STACK_TRACE", "the Python stack is taken at every op: longer steps", _OFF),
    Setting("TORCH_NEURONX_LOG_LEVEL", "decides what is logged; at 2 and above lines go to stdout", ("", "1")),
    Setting("TORCH_NEURONX_LOG_FILE", "the backend's warnings go to a file and are no Python warnings any more", ("",)),
    Setting("TORCH_NEURONX_DUMP", "intermediate code is written out in every compilation", _OFF),
    Setting("TORCH_NEURONX_DUMP_HLO_PB", "intermediate code is written out in every compilation", _OFF),
    Setting("NEURON_LOGICAL_NC_CONFIG", "decides how many physical cores make one device: other times and memory"),
    Setting("NEURON_RT_VIRTUAL_CORE_SIZE", "decides how many physical cores make one device: other times and memory"),
    # [PUB] env-vars page
    Setting("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS",
            "graphs and binaries stay on disk after the run and fill it", _OFF),
    # PyTorch's own; [USER] for its use with Neuron
    Setting("TORCH_DEVICE_BACKEND_AUTOLOAD",
            "`import torch` does not load torch-neuronx: a script has to import torch_neuronx itself", ("1",)),
)  # fmt: skip

VISIBLE_CORES = ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES")
"""Which cores a process may use. [PRE] list of the runtime's variables."""


# --- folders ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cache:
    """A folder torch-neuronx writes to: the variable that names it, and where it is when that is not set."""

    name: str
    default: str | None


CACHES = (
    Cache("TORCH_NEURONX_NEFF_CACHE_DIR", "/tmp/neff_cache"),  # [PRE]
    Cache("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", "/tmp/local_cache"),  # [PRE]
    Cache("TORCH_NEURONX_DEBUG_DIR", "/tmp/neuron_backend"),  # [PUB]; it can fill a small root disk [USER-B3]
    Cache("TORCH_NEURONX_HLO_CACHE_DIR", None),  # [USER] Difflet
)
LITTLE_SPACE, NO_SPACE = 5 * 2**30, 100 * 2**20
"""[OWN] bytes free below which a folder is warned of, and below which it fails. No document names a number."""
