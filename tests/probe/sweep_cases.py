"""The compile part of every case, on the emulated device: ``python -m tests.probe.sweep_cases [REPROS]``. Some minutes.

What a case's header expects of compiling must be found, at its line; cases whose headers expect none of it must have no
denied finding. With a folder, repro files are left in it, one folder a case. The exit code is 1 where a case fails.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from smoketest.config.models import Check
from smoketest.devices.base import Device, open_device
from smoketest.findings import Finding, SitePolicy
from smoketest.worker import compile as compile_part
from smoketest.worker.breadcrumb import BreadcrumbFile
from smoketest.worker.environment import read_environment
from smoketest.worker.job import Job

CASES = Path(__file__).parent.parent / "cases"

EXPECTED: dict[str, list[tuple[str, str | None, str]]] = {
    "002": [("NST206", "aten::masked_select", "src = torch.masked_select(a, mask)"),
            ("NST206", "aten::nonzero", "self_edges = torch.nonzero(src < dst)"),
            ("NST205", None, "self_edges = torch.nonzero(src < dst)")],
    "004": [("NST207", "aten::polar", "parts.append(torch.polar("),
            ("NST201", "aten::view_as_complex", "xc = torch.view_as_complex("),
            ("NST201", "aten::_conj", "return torch.view_as_real(xc * freqs")],
    "006": [("NST201", "aten::_prelu_kernel", "out = F.interpolate(self.up(self.down(x))"),
            ("NST201", "aten::_prelu_kernel_backward", "out = F.interpolate(self.up(self.down(x))"),
            ("NST201", "aten::grid_sampler_2d", "return F.grid_sample("),
            ("NST201", "aten::grid_sampler_2d_backward", "return F.grid_sample(")],
    "007": [("NST204", None, "if not bool((wt > 0).any()):")],
    "009": [("NST201", "aten::_fft_r2c", "spec = torch.fft.rfft("),
            ("NST201", "aten::_fft_c2r", "y = torch.fft.irfft("),
            ("NST201", "aten::_fft_c2c", "spec = torch.fft.rfft(")],
    "013": [("NST206", "aten::_unique2", "uniq, inverse = torch.unique(")],
    "016": [("NST204", None, "start = cache.seen.item()")],
    "021": [("NST205", None, "def forward(self, x):")],
    "026": [("NST204", None, "y, _ = self.rnn(")],
    "028": [("NST204", None, "mem, h = self.enc(")],
    "030": [("NST201", "aten::_embedding_bag", "a = self.tags(tag_ids, tag_off)"),
            ("NST201", "aten::_embedding_bag_backward", "a = self.tags(tag_ids, tag_off)"),
            ("NST201", "aten::_embedding_bag_per_sample_weights_backward", "b = self.clicks(")],
    "031": [("NST201", "aten::_sparse_coo_tensor_with_dims_and_tensors", "x = self.u(u)")],
    "033": [("NST201", "aten::_upsample_bicubic2d_aa", "image = F.interpolate("), ("NST205", None, "def forward(")],
    "035": [("NST201", "aten::lgamma", "ll = (torch.lgamma("), ("NST201", "aten::digamma", "ll = (torch.lgamma("),
            ("NST201", "aten::_standard_gamma", "lib = Gamma(a, b")],
    "037": [("NST201", "aten::_cdist_forward", "d = torch.cdist("), ("NST202", "with_effects", "low = torch.linalg.ch"),
            ("NST201", "aten::linalg_cholesky_ex", "low = torch.linalg.cholesky("),
            ("NST201", "aten::linalg_solve_triangular", "alpha = torch.linalg.solve_triangular(")],
    "042": [("NST202", None, "grad, = torch.autograd.grad("), ("NST204", None, "grad, = torch.autograd.grad(")],
    "051": [("NST201", "aten::multinomial", "fresh = dist.sample()"),
            ("NST207", "graph input", "adv = torch.zeros_like(rewards)")],
    "056": [("NST202", "run_and_save_rng_state", "return x + self.f(self.n(x))")],
    "063": [("NST205", None, "def forward(self, x, edge_index, seeds):")],
    "068": [("NST204", None, "frames = wav.unfold(-1, 16, 8) * self.window")],
}  # fmt: skip
"""By number of the case: rule, op, and how the line begins."""

CLEAN = {"018", "041", "043", "048", "053", "054", "057", "058", "061", "067"}
"""Nothing is expected of compiling these: no finding on firm grounds, and none of the rules that always deny."""


def findings(file: Path, device: Device, output: Path | None) -> list[Finding]:
    events: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            check=Check(name=file.stem, workload=file),
            device=device,
            policy=SitePolicy(file.parent),
            environment=read_environment({}),
            emit=events.append,
            breadcrumb=BreadcrumbFile(Path(folder) / "crumb"),
            output=None if output is None else output / file.stem,
        )
        compile_part.run(job)
    return [finding for event in events if event.event == "findings" for finding in event.findings]


def wrong(number: str, found: list[Finding]) -> list[str]:
    """What is not as expected, one sentence each."""
    missing = [
        f"{rule} {op or ''} is not found at '{code}'"
        for rule, op, code in EXPECTED.get(number, ())
        if not any((f.rule, f.op) == (rule, op) and f.site and f.site.code.startswith(code) for f in found)
    ]
    denied = [
        f"denied: {f.rule} {f.op}: {f.message}"
        for f in found
        if number in CLEAN and (f.grounds in ("reported", "cannot_lower") or f.rule in ("NST202", "NST206"))
    ]
    return missing + denied


def main(output: Path | None) -> int:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    device = open_device("emulated", continue_past_errors=True)
    files = sorted(CASES.glob("[0-9]*.py"))
    assert {file.stem[:3] for file in files} == EXPECTED.keys() | CLEAN
    failed = 0
    for file in files:
        found = findings(file, device, output)
        bad = wrong(file.stem[:3], found)
        failed += bool(bad)
        kind = "nothing expected" if file.stem[:3] in CLEAN else f"{len(EXPECTED[file.stem[:3]])} expected"
        sys.stdout.write(
            "\n".join([f"{'WRONG' if bad else 'ok   '} {file.stem}: {kind}, {len(found)} found", *bad]) + "\n"
        )
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
