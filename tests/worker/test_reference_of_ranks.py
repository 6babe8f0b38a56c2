"""Losses that ranks gave are compared with those of one process that makes the same steps of the ranks' parts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from smoketest.config.models import Check
from smoketest.devices.cpu import CpuDevice
from smoketest.findings import SitePolicy
from smoketest.findings.report import Finding, ParityPart
from smoketest.worker import exchange, reference
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job
from smoketest.workload import build

PADDED = """
import torch
from torch import nn
def make_model():
    return nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8))
def make_batch(step):
    ids = torch.arange(16).reshape(4, 4) % 8
    labels = ids.roll(1, 1)
    labels[0, 1:] = -100
    return {"x": ids, "y": labels}
def loss_fn(output, batch):
    return nn.functional.cross_entropy(output.flatten(0, 1), batch["y"].flatten())
"""
ITS_OWN_STEP = """
def train_step(model, batch, optimizer):
    loss = loss_fn(model(batch["x"]), batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


def check_of(folder: Path, kind: str, text: str = PADDED) -> Check:
    file = folder / "padded.py"
    file.write_text(text)
    return Check.model_validate({
        "name": "padded",
        "workload": file,
        "batch": {"forward": ["x"]},
        "training": {"steps": 1, "warmup": 1},
        "parallel": {"kind": kind, "nproc": 2},
        "device": "emulated",
    })  # fmt: skip


def losses_by_hand(check: Check, parts: int) -> tuple[float, ...]:
    """Of three steps, each of the mean of the losses of so many parts."""
    work = build(check, CpuDevice())
    losses = []
    for index in range(3):
        batch = work.batch(index)
        size = 4 // parts
        halves = [{name: tensor[at : at + size] for name, tensor in batch.items()} for at in range(0, 4, size)]
        loss = sum(work.loss(work.model(half["x"]), half) for half in halves) / parts
        loss.backward()
        work.optimizer.step()
        work.optimizer.zero_grad()
        losses.append(loss.item())
    return tuple(losses)


def compared(folder: Path, check: Check, losses: tuple[float, ...]) -> tuple[ParityPart, list[Finding]]:
    events: list[Any] = []
    record, crumb = folder / "record", folder / "crumb"
    crumb.touch()
    told = exchange.FromDevice("emulated", list(losses), problem="with several ranks the state is not kept")
    told.batch = exchange.batch_of(build(check, CpuDevice()), 2)
    exchange.write(told, record)
    reference.run(Job(
        check=check, device=CpuDevice(), policy=SitePolicy(folder), environment=read_environment({}),
        emit=events.append, breadcrumb=BreadcrumbFile(crumb), state_file=folder / "state", record_file=record,
        losses=losses,
    ))  # fmt: skip
    (part,) = [event.parity for event in events if event.event == "result"]
    return part, [finding for event in events if event.event == "findings" for finding in event.findings]


@pytest.mark.parametrize(("kind", "parts"), [("ddp", 2), ("fsdp2", 2), ("tp", 1)])
def test_padded_labels_are_no_difference(tmp_path: Path, kind: str, parts: int) -> None:
    check = check_of(tmp_path, kind)
    part, findings = compared(tmp_path, check, losses_by_hand(check, parts))
    assert (part.status, part.steps, findings) == ("ran", 3, [])
    assert part.max_relative_error is not None
    assert part.max_relative_error < 1e-6


def test_ranks_that_do_not_average_gradients_differ_after_the_first_step(tmp_path: Path) -> None:
    check = check_of(tmp_path, "ddp")
    right = losses_by_hand(check, 2)
    part, (finding,) = compared(tmp_path, check, (right[0], right[1] * 1.01, right[2]))
    assert (part.status, finding.rule) == ("ran", "NST106")
    assert finding.message.startswith("the loss of step 2 of 3 differs from plain CPU's by 1.0e-02 of it")


def test_a_custom_train_step_whose_loss_is_no_mean_over_the_batch_is_not_compared(tmp_path: Path) -> None:
    check = check_of(tmp_path, "ddp", PADDED + ITS_OWN_STEP)
    one = losses_by_hand(check, 1)
    assert compared(tmp_path, check, one)[0].status == "ran", "where it is a mean, the losses agree"
    in_parts = losses_by_hand(check, 2)
    assert not math.isclose(in_parts[0], one[0], rel_tol=1e-3)
    part, findings = compared(tmp_path, check, in_parts)
    assert (part.status, findings) == ("skipped", [])
    assert part.reason == (
        "the loss of step 1 is not that of one process on the whole batch: a custom train_step cannot be made of the"
        " ranks' parts there, and the step's loss may not be a plain mean over the batch; not compared"
    )
