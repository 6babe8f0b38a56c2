from __future__ import annotations

from pathlib import Path

import pytest

from smoketest.findings import SitePolicy
from smoketest.findings.remedies import remedy_for
from smoketest.witness.hostsync import sync_remedy


@pytest.mark.parametrize(
    "code",
    [
        "dist = torch.distributions.Categorical(logits=logits)",
        "return Normal(mean, std)",
        "loss = -(dist.log_prob(action) * adv).mean()",
    ],
)
def test_what_a_distribution_checks_is_switched_off_by_name(code: str) -> None:
    assert "`validate_args=False`" in sync_remedy("read", code)


@pytest.mark.parametrize(
    "code", ["if loss.item() > 100:", "print(dist.log_prob(a).item())", "if Normal(m, s).mean > 0:", ""]
)
def test_what_the_line_reads_itself_is_no_check_of_a_distribution(code: str) -> None:
    assert "validate_args" not in sync_remedy("read", code)


@pytest.mark.parametrize(("code", "begins"), [
    ("print(loss.item())", "Log once in many steps:"),
    ('logger.info("loss %f", loss)', "Log once in many steps:"),
    ('bar.set_postfix(loss=loss.item())', "Log once in many steps:"),
    ("total += loss.item()", "Leave out `.item()`"),
    ("scale = float(x.max())", "Leave out `.item()`"),
    ("sizes = lengths.tolist()", "Keep the values a tensor;"),
    ("if loss.item() > 100:", "Do not branch on a tensor:"),
    ("x = a if flag else b", "Do not branch on a tensor:"),
    ("assert not x.isnan().any()", "Do not branch on a tensor:"),
    ("ok = bool(mask.any())", "Do not branch on a tensor:"),
    ("y = helper(x)", "Keep the number a tensor and read it once in many steps;"),
    ("", "Keep the number a tensor and read it once in many steps;"),
])  # fmt: skip
def test_the_advice_begins_with_what_the_line_does(code: str, begins: str) -> None:
    assert sync_remedy("read", code).startswith(begins)


def test_of_a_size_that_values_decide_the_advice_is_the_ops_own() -> None:
    assert sync_remedy("size", "u = torch.unique(x)", op="aten::_unique2") == remedy_for("aten::_unique2")
    assert sync_remedy("size", "i = x.nonzero()", op="aten::nonzero") == remedy_for("aten::nonzero")
    assert sync_remedy("size", "y = op(x)", op="mylib::op").startswith("Keep the full size")


@pytest.mark.parametrize(
    ("code", "start"),
    [
        ("clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)", "error_if_nonfinite=True is what reads"),
        ("loss = F.gaussian_nll_loss(mean, y, var)", "The loss reads whether a variance is negative."),
    ],
)
def test_a_check_within_a_call_of_pytorch_is_named_with_what_does_without_it(code: str, start: str) -> None:
    assert sync_remedy("read", code).startswith(start)


def test_of_a_line_in_a_library_it_says_whose_it_is_and_through_which_module() -> None:
    told = sync_remedy("read", "if flag.any():", "somelib", "encoder.0")
    assert told.startswith("The line is of somelib, not yours, reached through your module `encoder.0`: see whether")


def test_masks_of_transformers_have_a_switch() -> None:
    told = sync_remedy("read", "attention_mask = create_bidirectional_mask(", "transformers", "distilbert")
    assert "Leave attention_mask out where nothing is padded" in told


def test_a_file_of_an_installed_package_is_told_from_the_users(tmp_path: Path) -> None:
    policy = SitePolicy(tmp_path)
    assert policy.library(str(tmp_path / "lib/site-packages/transformers/models/x.py")) == "transformers"
    assert policy.library(str(tmp_path / "model.py")) is None


def test_of_a_line_in_an_optimizer_of_a_library_it_says_which_optimizer() -> None:
    told = sync_remedy("read", "loss = float(closure())", "torch", "LBFGS", in_optimizer=True)
    assert told.startswith("The line is of torch, not yours, in LBFGS: see whether an option of the optimizer")
