"""A machine out of files: a Trn2 instance unless it is made something else."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from doubles.packages import add_native, add_sdk, add_torch
from doubles.site import Site, bare_environment
from smoketest.doctor import Diagnosis, Limits, Place, examine

__all__ = ["ONE_DEVICE", "FakeMachine", "trn2"]

ONE_DEVICE = json.dumps([{"neuron_device": 0, "nc_count": 8, "neuroncore_ids": [0, 1], "neuron_processes": []}])
"""As a trn1.2xlarge was seen to print it, with a Trn2's number of cores. [USER] tests of backend.ai."""


@dataclass
class FakeMachine:
    """Root folder, interpreter, packages and environment variables."""

    root: Path
    python: str
    site: Site
    environ: dict[str, str] = field(default_factory=dict)
    system: str = "Linux"
    architecture: str = "x86_64"

    def write(self, path: str, text: str) -> None:
        """A file of the machine."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")

    def set_instance(self, product: str) -> None:
        self.write("sys/devices/virtual/dmi/id/sys_vendor", "Amazon EC2")
        self.write("sys/devices/virtual/dmi/id/product_name", product)

    def set_system(self, name: str, version: str) -> None:
        self.write("etc/os-release", f'PRETTY_NAME="{name} {version}"\nID={name.lower()}\nVERSION_ID="{version}"')

    def set_neuron_ls(self, script: str) -> None:
        """A neuron-ls that runs this shell script."""
        self.write("opt/aws/neuron/bin/neuron-ls", f"#!/bin/sh\n{script}")
        (self.root / "opt/aws/neuron/bin/neuron-ls").chmod(0o755)

    def examine(self, limits: Limits | None = None) -> Diagnosis:
        """What the doctor says of it."""
        place = Place(self.root, self.system, self.architecture)
        return examine(self.environ, python=self.python, place=place, limits=limits)


def trn2(folder: Path, *, packages: bool = True) -> FakeMachine:
    """A healthy Trn2 instance; without `packages`, one with nothing installed yet."""
    python, site = bare_environment(folder / "venv")
    machine = FakeMachine(folder / "root", python, site, {"PATH": os.defpath})
    (machine.root / "tmp").mkdir(parents=True)
    machine.set_instance("trn2.3xlarge")
    machine.set_system("Ubuntu", "26.04")
    machine.write("sys/module/neuron/version", "2.31.7.0")
    machine.set_neuron_ls(f"echo '{ONE_DEVICE}'")
    if packages:
        add_torch(site)
        add_native(site)
        add_sdk(site)
    return machine
