from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from remedy_cases import CASES, MORE, Case, evaluate, snippet
from torch.utils._python_dispatch import TorchDispatchMode

from smoketest.findings import Observation, merge
from smoketest.findings.identity import functional_base
from smoketest.findings.modules import MODULES
from smoketest.findings.remedies import ADVICE, LOWERS_WITH, REWRITES, RUNS_IN, is_rewrite, remedy_for
from smoketest.findings.report import Site
from smoketest.findings.rules import RULES
from smoketest.operators.profile import load_profile

LONG = os.environ.get("SMOKETEST_LONG") == "1"


def test_every_rewrite_has_a_case_that_compares_it() -> None:
    assert set(CASES) == set(REWRITES)


@pytest.mark.parametrize("op", sorted(CASES))
def test_rewrite_gives_what_the_op_gives_on_the_cpu(op: str) -> None:
    gives_the_same(CASES[op], snippet(op))


@pytest.mark.parametrize(("op", "code", "case"), MORE)
def test_code_for_other_arguments_of_the_op_gives_what_it_gives_with_them(op: str, code: str, case: Case) -> None:
    assert f"`{code}`" in REWRITES[op]
    gives_the_same(case, code)


def gives_the_same(case: Case, code: str) -> None:
    torch.manual_seed(0)
    names = case.make()
    leaves = {name: v for name, v in names.items() if isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf}
    expected = evaluate(names, case.original)
    found = evaluate(names, code, case.prepare)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=case.atol, rtol=1e-4, check_dtype=False)
    if case.gradients and expected.requires_grad:
        for name, leaf in leaves.items():
            want, got = (
                torch.autograd.grad(y.sum(), leaf, retain_graph=True, allow_unused=True)[0] for y in (expected, found)
            )
            torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3, msg=f"gradient by {name}")


def output_of(script: str, *arguments: Path | str) -> dict[str, Any]:
    """What a script beside this file prints, as data; a process of its own, since it changes torch."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name(script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=280,
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_no_rewrite_falls_back_on_the_emulated_device_forward_or_backward() -> None:
    seen = output_of("remedy_cases.py")
    assert set(seen) == set(REWRITES)
    assert {op: result["rewrite"] for op, result in seen.items() if result["rewrite"]} == {}
    # What is replaced does fall back (or raises), else the line above could not fail. This one has a kernel in the
    # list and was seen to fall back by users all the same.
    assert {op for op, result in seen.items() if not result["original"]} == {"repeat_interleave"}


def test_every_rewrite_lowers_forward_and_backward(tmp_path: Path) -> None:
    """A quarter of them; `make remedies` has them all."""
    pytest.importorskip("torch_mlir", reason="needs the `lowering` extra")
    seen = output_of("remedy_lowering.py", tmp_path, "1" if LONG else "4")
    assert seen["refused"] == {}
    assert seen["graphs"] == 2
    assert seen["probed"] > (300 if LONG else 100)


def test_what_reports_say_the_rewrites_were_tested_with_is_what_they_are_tested_with() -> None:
    assert load_profile(None).name == RUNS_IN
    constraints = Path(__file__).parents[2].joinpath("constraints.txt").read_text()
    assert LOWERS_WITH.replace(" ", "==") in constraints.splitlines()
    assert is_rewrite(REWRITES["sort"] + " And more.")
    assert not any(is_rewrite(text) for text in ADVICE.values())


def test_advice_promises_no_code() -> None:
    assert not set(ADVICE) & set(REWRITES)
    assert [op for op, text in ADVICE.items() if "`" in text] == []


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("aten::sort.values_stable", "Sort along the last dimension with topk"),
        ("aten::index_fill_.int_Scalar", "Rows of a matrix (dim 0) are filled"),
        ("aten::native_batch_norm_backward", "A newer release may have the kernel"),
        ("aten::max_pool2d_with_indices_backward.grad_input", "Where windows do not overlap"),
        ("aten::unfold_backward", "Along the last dimension"),
        ("aten::random_.from", "Draw random numbers on the CPU"),
        ("aten::_cdist_backward", "For p=2, and"),
        ("aten::nll_loss2d_backward.grad_input", "Flatten the pixels first"),
        ("mse_loss", "Write `((x - y) ** 2).mean()`;"),
    ],
)
def test_recorded_names_find_the_remedy_of_their_functional_op(name: str, start: str) -> None:
    remedy = remedy_for(name)
    assert remedy is not None
    assert remedy.startswith(start)


def test_ops_of_other_namespaces_have_no_remedy_here() -> None:
    assert remedy_for("mylib::sort") is None


def test_a_finding_has_the_ops_remedy_where_its_rule_is_about_an_op_and_else_the_rules() -> None:
    def remedy(rule: str, **given: str) -> str | None:
        return merge([Observation(rule, op="aten::acos.out", **given)])[0].remedy  # type: ignore[arg-type]

    about = ("NST101", "NST104", "NST201", "NST206")
    assert [remedy(rule) for rule in about] == [REWRITES["acos"] for _ in about]
    assert remedy("NST204") == RULES["NST204"].remedy
    assert remedy("NST101", remedy="Own words.") == "Own words."


def test_the_remedy_of_roll_done_once_for_each_dim_is_roll_over_several() -> None:
    x = rolled = torch.randn(2, 3, 4, 6)
    for shift, dim in ((1, 2), (-1, 3)):
        n = x.shape[dim]
        rolled = evaluate({"x": rolled, "dim": dim, "n": n, "k": shift % n}, snippet("roll"))
    assert torch.equal(rolled, torch.roll(x, shifts=(1, -1), dims=(2, 3)))


def test_the_series_of_matrix_exp_squared_is_that_of_a_large_matrix() -> None:
    torch.manual_seed(0)
    x, s = torch.randn(5, 4, 4), 5
    y = evaluate({"a": x / 2**s, "eye": torch.eye(4)}, snippet("linalg_matrix_exp"))
    for _ in range(s):
        y = y @ y
    torch.testing.assert_close(y, torch.linalg.matrix_exp(x), atol=1e-4, rtol=1e-4)


def test_the_remedy_of_fake_quantize_passes_the_gradient_on_inside_the_limits() -> None:
    case = CASES["fake_quantize_per_tensor_affine_cachemask"]
    names = case.make() | {"x": torch.tensor([-1.2, -0.31, 0.3, 0.52], requires_grad=True)}
    found = evaluate(names, snippet("fake_quantize_per_tensor_affine_cachemask"), case.prepare)
    torch.testing.assert_close(found.detach(), torch.tensor([-1.1, -0.3, 0.3, 0.4]))
    assert torch.autograd.grad(found.sum(), names["x"])[0].tolist() == [0.0, 1.0, 1.0, 0.0]


def test_the_remedy_of_cumprod_says_what_is_seen_at_zero() -> None:
    x = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)
    found = evaluate({"x": x}, snippet("cumprod"))
    assert torch.autograd.grad(found.sum(), x)[0].isnan().any()
    assert "At x == 0 its gradient is nan" in REWRITES["cumprod"]


_ARGUMENTS = {
    "bucketize": ["right=True"],
    "searchsorted": ["right=True", "side='right'", "sorter="],
    "isin": ["invert=True"],
    "sort": ["descending=True", "another dim"],
    "round": ["decimals="],
    "logit": ["eps="],
    "rsub": ["alpha="],
    "bincount": ["weights="],
    "count_nonzero": ["dim="],
    "nansum": ["dim=", "keepdim="],
    "scatter_reduce": ["dim=", "include_self=False", "include_self=True"],
    "mse_loss": ["reduction='sum'", "'none'", "weight="],
    "smooth_l1_loss": ["reduction='sum'", "'none'", "beta=0"],
    "binary_cross_entropy_with_logits": ["reduction='sum'", "'none'", "weight=", "pos_weight="],
    "nan_to_num": ["nan=", "posinf=", "neginf="],
    "norm": ["dim=", "keepdim="],
    "embedding_renorm": ["max_norm", "norm_type="],
    "huber_loss": ["reduction='sum'", "'none'", "weight="],
    "binary_cross_entropy": ["reduction='sum'", "'none'", "weight="],
    "nll_loss2d_forward": ["reduction=", "weight=", "ignore_index="],
    "var": ["tuple of dims", "correction=0", "unbiased=False", "keepdim="],
    "max_pool2d_with_indices": ["stride", "padding", "dilation", "ceil_mode=True", "return_indices=True"],
    "avg_pool2d": ["stride", "padding", "ceil_mode=True", "count_include_pad=False", "divisor_override"],
    "upsample_nearest2d": ["size", "scale_factor"],
    "upsample_bilinear2d": ["size", "scale_factor", "align_corners", "antialias", "recompute_scale_factor"],
    "im2col": ["padding=", "dilation=", "stride="],
    "_embedding_bag": ["mode=", "padding_idx", "per_sample_weights", "max_norm", "scale_grad_by_freq"],
    "_fft_r2c": ["norm=", "last dimension", "length n"],
    "_cdist_forward": ["p=2"],
    "_weight_norm_interface": ["dim=0", "dim=None"],
    **{op: ["keepdim="] for op in ("argmax", "argmin", "kthvalue", "median", "min", "prod")},
}


@pytest.mark.parametrize("op", sorted(_ARGUMENTS))
def test_a_remedy_covers_or_names_every_argument_that_changes_the_result(op: str) -> None:
    assert [argument for argument in _ARGUMENTS[op] if argument not in REWRITES[op]] == []


@pytest.mark.parametrize(
    "op", ["sort", "median", "min", "argmax", "argmin", "searchsorted", "bucketize", "max_pool2d_with_indices"]
)
def test_values_are_those_of_the_op_where_there_are_ties(op: str) -> None:
    case = CASES[op]
    torch.manual_seed(0)
    names = {k: v.detach().round() if isinstance(v, torch.Tensor) and k == "x" else v for k, v in case.make().items()}
    assert len(names["x"].unique()) < names["x"].numel()
    expected = evaluate(names, case.original)
    torch.testing.assert_close(evaluate(names, snippet(op), case.prepare), expected, check_dtype=False)


def test_the_remedy_of_sort_says_what_is_seen_that_its_indices_are_another_order_where_there_are_ties() -> None:
    x = torch.zeros(64)
    assert not torch.equal(torch.topk(-x, 64).indices, torch.sort(x, stable=True).indices)
    assert "It is not stable" in REWRITES["sort"]


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 5, 6), (4, 3, 2, 5, 6)])
def test_the_heart_of_batch_norm_is_for_any_rank(shape: tuple[int, ...]) -> None:
    case, x = CASES["native_batch_norm"], torch.randn(shape)
    expected = torch.nn.functional.batch_norm(x, None, None, training=True)
    torch.testing.assert_close(evaluate({"x": x, "eps": 1e-5}, snippet("native_batch_norm"), case.prepare), expected)


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("y = F.grid_sample(x, g)", REWRITES["grid_sampler_2d"][-20:]),
        (
            "F.grid_sample(x, g, mode='bilinear', padding_mode='border', align_corners=True)",
            " Your call has mode=bilinear, padding_mode=border, align_corners=True: pass it the same.",
        ),
        ('F.grid_sample(x, g, mode="bilinear")', " Your call has mode=bilinear, which is what it does."),
        (
            'F.grid_sample(x, g, "bilinear", padding_mode="reflection")',
            " It does not cover your call, which has padding_mode=reflection:"
            " change the call to bilinear with zeros or border first.",
        ),
    ],
)
def test_the_remedy_of_grid_sample_says_what_of_the_call_it_covers(code: str, end: str) -> None:
    site = Site(file="m.py", line=1, code=code)
    for op in ("aten::grid_sampler_2d", "aten::grid_sampler_2d_backward"):
        remedy = merge([Observation("NST101", op=op, site=site)])[0].remedy or ""
        assert remedy.startswith(REWRITES["grid_sampler_2d"])
        assert is_rewrite(remedy)
        assert remedy.endswith(end)


@pytest.mark.parametrize("op", sorted(MODULES))
def test_whole_code_says_in_its_first_line_what_it_covers_and_then_what_not(op: str) -> None:
    comment = " ".join(line.removeprefix("# ") for line in MODULES[op].splitlines() if line.startswith("# "))
    assert MODULES[op].startswith("# Covers ")
    assert "Does not cover " in comment


@pytest.mark.parametrize(
    ("op", "called_as", "code", "meant"),
    [
        ("aten::var_mean.correction", "aten::native_group_norm", "h = self.norm(h)", "native_group_norm"),
        ("aten::var_mean.correction", "aten::var_mean.correction", "F.group_norm(h, 4)", "native_group_norm"),
        ("aten::var_mean.correction", "aten::var_mean.correction", "v, m = torch.var_mean(h)", "var"),
        ("aten::linspace.out", "aten::affine_grid_generator", "grid = f(theta)", "affine_grid_generator"),
        ("aten::linspace.out", "aten::linspace", "grid = F.affine_grid(theta, h.shape)", "affine_grid_generator"),
        ("aten::linspace.out", "aten::linspace", "t = torch.linspace(0, 1, 9, device=x.device)", "linspace"),
        (
            "aten::_sparse_coo_tensor_with_dims_and_tensors",
            "aten::_sparse_coo_tensor_with_dims_and_tensors",
            "a = torch.sparse_coo_tensor(edges, ones, (n, n))",
            "_sparse_mm",
        ),
        ("aten::addmm", "aten::addmm", "h = torch.sparse.mm(a, h)", "_sparse_mm"),
        (
            "aten::_sparse_coo_tensor_with_dims_and_tensors",
            "aten::_sparse_coo_tensor_with_dims_and_tensors",
            "x = self.u(u)",
            "_sparse_coo_tensor_with_dims_and_tensors",
        ),
        ("aten::sort.values_stable", "aten::argsort", "i = x.argsort()", "sort"),
        (
            "aten::sort.values_stable",
            "aten::sort",
            "pack_padded_sequence(x, n, enforce_sorted=False)",
            "_pack_padded_sequence",
        ),
        (
            "aten::_padded_dense_to_jagged_forward",
            "aten::_nested_from_padded_tensor",
            "h = nested.to_padded_tensor(h, 0.0)",
            "_jagged_to_padded_dense_forward",
        ),
        (
            "aten::log_sigmoid_forward",
            "aten::binary_cross_entropy_with_logits",
            "loss = F.binary_cross_entropy_with_logits(x, y)",
            "binary_cross_entropy_with_logits",
        ),
        ("aten::set_.source_Tensor", None, "", "set"),
        ("aten::select_scatter", "aten::select_backward", "return self.head(h[-1])", "select_scatter"),
        ("aten::sort.values_stable", "aten::sort", "h = self.experts(h, index)", "transformers::grouped_mm_fallback"),
        (
            "transformers::grouped_mm_fallback_backward",
            "transformers::grouped_mm_fallback_backward",
            "h = self.moe(h)",
            "transformers::grouped_mm_fallback",
        ),
    ],
)
def test_the_remedy_is_that_of_what_the_line_calls(op: str, called_as: str, code: str, meant: str) -> None:
    site = Site(file="m.py", line=1, code=code)
    found = merge([Observation("NST101", op=op, called_as=called_as, site=site)])[0].remedy
    assert found == (REWRITES | ADVICE)[meant]


class Called(TorchDispatchMode):
    """Names of the ops that were dispatched."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(functional_base(op.name()))
        return op(*args, **(kwargs or {}))


def test_experts_of_transformers_compute_the_same_without_sorting_as_the_advice_has_it() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4}
    config = transformers.MixtralConfig(**sizes, num_key_value_heads=2, num_local_experts=4, vocab_size=16)
    model = transformers.MixtralForCausalLM(config)
    tokens = torch.arange(12).reshape(2, 6)
    grouping = {"aten::sort", "aten::histc"}
    with Called() as before:
        expected = model(tokens).logits
    assert grouping <= before.names
    model.set_experts_implementation("batched_mm")
    with Called() as after:
        torch.testing.assert_close(model(tokens).logits, expected)
    assert not [name for name in after.names if name in grouping or "grouped_mm" in name]


@pytest.mark.parametrize(
    ("original", "given"),
    [
        ("F.elu(x)", {"scale": 1, "alpha": 1, "slope": 1}),
        ("F.selu(x)", {"scale": 1.0507009873554805, "alpha": 1.6732632423543772, "slope": 1}),
        ("F.celu(x, 0.5)", {"scale": 1, "alpha": 0.5, "slope": 1 / 0.5}),
    ],
)
def test_the_remedy_of_elu_holds_for_all_that_call_it(original: str, given: dict[str, float]) -> None:
    assert all(str(value) in REWRITES["elu"] for value in given.values() if value not in (1, 0.5, 2))
    x = torch.linspace(-3, 3, 13)
    torch.testing.assert_close(evaluate({"x": x, **given}, snippet("elu")), evaluate({"x": x}, original))


def test_the_backward_of_a_solver_has_the_remedy_of_its_forward() -> None:
    assert remedy_for("aten::linalg_lu_solve") == remedy_for("aten::_linalg_solve_ex.result")
