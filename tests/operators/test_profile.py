"""An operator profile is data with provenance; a bad one ends in one message."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from smoketest.errors import ConfigError, ProfileError
from smoketest.operators.profile import load_profile


def test_the_packaged_profile_says_where_it_is_from_and_what_it_cannot_tell() -> None:
    profile = load_profile()
    assert (profile.name, profile.grade, profile.date) == ("torch-neuronx-prerelease-2026-04", "PRE", "2026-04")
    assert profile.torch_version == "2.10"
    assert "Registered is not the same as working" in profile.note
    assert "a release may differ" in profile.note


def test_the_packaged_profile_lists_what_the_source_tree_registers() -> None:
    profile = load_profile()
    assert len(profile.native) == 367
    assert len(profile.unimplemented) == 685
    assert len(profile.view_whitelist) == 37
    assert profile.registered_by["aten::clone"] == "cpp"
    assert profile.registered_by["aten::addmm"] == "torch_mlir"
    assert profile.decompositions["aten::topk"] == "custom"
    assert profile.decompositions["aten::embedding"] == "inherited"
    assert any(entry.op == "torch.operator" for entry in profile.known_unsupported)


@pytest.mark.parametrize(
    ("called", "recorded"),
    [
        ("aten::atan2", "aten::atan2.out"),
        ("aten::acos", "aten::acos.out"),
        ("aten::sort.values_stable", "aten::sort.values_stable"),
        ("aten::sort.stable", "aten::sort.values_stable"),
        ("aten::scatter_reduce.two", "aten::scatter_reduce.two_out"),
        ("aten::index_fill_.int_Scalar", "aten::index_fill_.int_Scalar"),
        ("aten::normal_", "aten::normal_"),
        ("aten::mse_loss", "aten::mse_loss.out"),
    ],
)
def test_the_tracker_name_of_a_fallback_is_predicted(called: str, recorded: str) -> None:
    assert load_profile().fallback_name(called) == recorded


@pytest.mark.parametrize(
    ("called", "why"),
    [
        ("aten::addmm", "native"),
        ("aten::cos", "its .out is native"),
        ("aten::view_as_real", "on the view whitelist"),
        ("aten::matmul", "taken apart before it reaches the device"),
    ],
)
def test_no_name_is_predicted_where_nothing_is_recorded(called: str, why: str) -> None:
    assert load_profile().fallback_name(called) is None, why


def test_an_op_is_native_through_the_out_form_it_reaches() -> None:
    profile = load_profile()
    assert profile.reached("aten::addcmul_") == "aten::addcmul.out"
    assert profile.is_native("aten::addcmul_")
    assert not profile.is_native("aten::atan2")


def test_the_profile_file_is_sorted_with_one_entry_a_line() -> None:
    text = (resources.files("smoketest.operators") / "data" / "torch-neuronx-prerelease-2026-04.json").read_text()
    data = json.loads(text)
    assert text == json.dumps(data, indent=0, sort_keys=True, ensure_ascii=False) + "\n"
    assert '\n"aten::_log_softmax": "torch_mlir",\n' in text


def test_a_profile_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps(
            {
                "name": "mine",
                "note": "two ops",
                "source": "by hand",
                "date": "2026-12-01",
                "grade": "EXPORT",
                "torch_version": "2.13",
                "native": {"aten::add.Tensor": "torch_mlir", "aten::mm": "cpp"},
            }
        )
    )
    assert load_profile(path).native == {"aten::add.Tensor", "aten::mm"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{,}", "bad.json:1:2: an operator profile is a JSON file"),
        ("[]", "bad.json: not an operator profile"),
        ('{"name": "x"}', "note: Field required"),
        ("[" * 100_000, "bad.json"),
    ],
)
def test_a_file_that_is_no_profile_is_named_with_what_is_wrong(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert expected in str(caught.value)


def test_an_unknown_field_of_a_profile_is_refused(tmp_path: Path) -> None:
    data = json.loads(
        (resources.files("smoketest.operators") / "data" / "torch-neuronx-prerelease-2026-04.json").read_text()
    )
    path = tmp_path / "extra.json"
    path.write_text(json.dumps(data | {"natives": {}}))
    with pytest.raises(ProfileError, match="natives: Extra inputs are not permitted"):
        load_profile(path)


def test_a_name_that_is_no_overload_is_refused(tmp_path: Path) -> None:
    data = json.loads(
        (resources.files("smoketest.operators") / "data" / "torch-neuronx-prerelease-2026-04.json").read_text()
    )
    path = tmp_path / "names.json"
    path.write_text(json.dumps(data | {"native": {"add": "cpp"}}))
    with pytest.raises(ProfileError, match="native: 'add' is not the name of an overload"):
        load_profile(path)


def test_a_missing_file_is_a_configuration_error_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile(tmp_path / "nowhere.json")
    assert "nowhere.json: cannot read this operator profile: No such file or directory" in str(caught.value)
    assert "hint: leave the profile out to use the packaged one" in str(caught.value)


def test_profiles_and_evidence_load_without_torch() -> None:
    program = (
        "import sys, smoketest.operators.evidence as e, smoketest.operators.profile as p;"
        "e.grounds_for('aten::atan2.out', p.load_profile()); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
