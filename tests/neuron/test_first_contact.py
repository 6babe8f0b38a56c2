"""One command for the first person with a device: what it runs, and that what it packs names nobody."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from running import CHECK, HERE, Place

from smoketest.first_contact import pack, steps
from smoketest.supervise.names import Names


def test_steps_come_one_after_the_other_and_each_has_a_limit() -> None:
    found = list(steps(Path("/tmp/x"), [Path("configs/gpt2.yaml"), Path("a/b.yaml")], Path("tests/neuron")))
    assert [step.name for step in found] == [
        "packages", "doctor", "neuron-ls", "collect-env", "names", "export", "run-measured", "run-predicted",
        "compare-gpt2", "compare-b", "suite",
    ]  # fmt: skip
    assert all(step.seconds > 0 for step in found)
    measured = next(step for step in found if step.name == "run-measured")
    assert measured.command[1:] == (
        "-m", "smoketest", "run", "configs/gpt2.yaml", "a/b.yaml", "--device", "neuron", "--output", "/tmp/x/measured",
    )  # fmt: skip
    assert "suite" not in [step.name for step in steps(Path("/tmp/x"), [], None)]


def test_what_is_packed_names_neither_person_nor_machine(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "measured" / "gpt2").mkdir(parents=True)
    (folder / "doctor.txt").write_text("/home/alicia/x of alicia on ip-10-0-0-7, instance i-0123456789abcdef0")
    (folder / "measured" / "gpt2" / "report.json").write_text("{}")
    (folder / "weights.bin").write_bytes(b"1")
    file = tmp_path / "packed.tar.gz"
    assert pack(folder, file, Names(home="/home/alicia", user="alicia", host="ip-10-0-0-7")) == 2
    with tarfile.open(file) as archive:
        assert archive.getnames() == ["first-contact/doctor.txt", "first-contact/measured/gpt2/report.json"]
        assert {(entry.uname, entry.uid) for entry in archive} == {("", 0)}
        content = archive.extractfile("first-contact/doctor.txt")
        assert content is not None
        assert content.read() == b"~/x of <user> on <host>, instance <instance>"


@pytest.mark.doubles
def test_on_a_double_everything_runs_and_the_predictions_hold(place: Callable[[str], Place], tmp_path: Path) -> None:
    at = place("complete")
    (tmp_path / "small.yaml").write_text(CHECK.format(workload=HERE / "small.py", more=""))
    command = [sys.executable, "-m", "smoketest.first_contact", "small.yaml", "--no-suite"]
    done = subprocess.run(command, env=dict(at.environ), cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert "first-contact.tar.gz: " in done.stderr
    with tarfile.open(tmp_path / "first-contact.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    packed = tmp_path / "first-contact"
    assert "device usable from torch: yes" in (packed / "collect-env.txt").read_text()
    assert "false" not in (packed / "names.txt").read_text()
    assert (packed / "profile.json").exists()
    compared = (packed / "compare-small.txt").read_text()
    assert compared.split("\n")[0].startswith("# 0 of 5 places contradict the prediction")
    assert "was predicted: 5 of 5 (100 %)" in compared


@pytest.mark.doubles
def test_the_suite_for_the_genuine_package_passes_on_a_complete_double(place: Callable[[str], Place]) -> None:
    """But for the doctor's: this machine is no Trn2."""
    at = place("complete")
    environ = {**at.environ, "PYTHONPATH": os.pathsep.join([at.environ["PYTHONPATH"], str(HERE.parent)])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE), "-m", "neuron"]
    done = subprocess.run(
        [*command, "-k", "not doctor"], env=environ, capture_output=True, text=True, timeout=600, cwd=HERE.parents[1]
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout.splitlines()[-1]
