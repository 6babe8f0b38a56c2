from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from smoketest.findings import Site, SitePolicy
from smoketest.findings.sites import project_root

STDLIB = sysconfig.get_path("stdlib")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").touch()
    return tmp_path.resolve()


def frames(*files: Path | str) -> list[tuple[str, int]]:
    """Innermost first, line numbers 1, 2, …"""
    return [(str(file), line) for line, file in enumerate(files, 1)]


def test_the_innermost_frame_of_the_users_code_wins(root: Path) -> None:
    torch = root / ".venv/lib/python3.11/site-packages/torch/nn/functional.py"
    site = SitePolicy(root).choose(frames(torch, root / "model.py", root / "train.py"))
    assert site == Site(file="model.py", line=2, code="")


def test_a_librarys_helper_is_passed_over_for_the_users_line(root: Path) -> None:
    helper = root / ".venv/lib/python3.11/site-packages/einops/_backends.py"
    assert SitePolicy(root).choose(frames(helper, root / "model.py")) == Site(file="model.py", line=2)


@pytest.mark.parametrize(
    "file",
    ["transformers/models/gpt2/modeling_gpt2.py", "torchvision/models/resnet.py", "timm/models/layers/norm.py"],
)
def test_a_librarys_model_file_wins_over_the_line_that_called_it(root: Path, file: str) -> None:
    packages = root / ".venv/lib/python3.11/site-packages"
    helper = packages / "transformers/pytorch_utils.py"
    site = SitePolicy(root).choose(frames(helper, packages / file, root / "train.py"))
    assert site == Site(file=file, line=2)


def test_the_users_own_layer_inside_a_librarys_model_wins(root: Path) -> None:
    library = root / ".venv/lib/python3.11/site-packages/transformers/models/gpt2/modeling_gpt2.py"
    assert SitePolicy(root).choose(frames(root / "attention.py", library)) == Site(file="attention.py", line=1)


def test_without_a_users_line_the_innermost_library_line_is_shown_as_package_and_file(root: Path) -> None:
    inner = Path("/usr/lib/python3/dist-packages/lightning/loops/fit.py")
    outer = Path("/usr/lib/python3/dist-packages/lightning/trainer.py")
    assert SitePolicy(root).choose(frames(inner, outer)) == Site(file="lightning/loops/fit.py", line=1)


def test_pytorch_the_standard_library_and_this_package_are_never_shown(root: Path) -> None:
    import smoketest

    plumbing = [
        "<string>",
        "<frozen runpy>",
        Path(STDLIB) / "contextlib.py",
        Path(smoketest.__file__).parent / "worker" / "eager.py",
        "/opt/venv/lib/python3.12/site-packages/torch/_ops.py",
        "/opt/venv/lib/python3.12/site-packages/torch_neuronx/python_ops/base.py",
        "/opt/venv/lib/python3.12/site-packages/functorch/einops.py",
    ]
    assert SitePolicy(root).choose(frames(*plumbing)) is None
    assert SitePolicy(root).choose([]) is None


def test_a_venv_inside_the_project_is_not_the_users_code(root: Path) -> None:
    policy = SitePolicy(root)
    inside = str(root / ".venv/lib/python3.11/site-packages/acme/ops.py")
    assert policy.rank(inside) == 1
    assert policy.display(inside) == "acme/ops.py"


def write(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return str(path)


def test_files_are_named_relative_to_the_project(root: Path) -> None:
    assert SitePolicy(root).display(str(root / "src/net/layers.py")) == "src/net/layers.py"


@pytest.mark.parametrize("checkout", ["alice/net", "ci/build-17"])
def test_a_file_outside_the_project_is_named_alike_wherever_it_lies(tmp_path: Path, checkout: str) -> None:
    policy = SitePolicy(tmp_path / "project")
    there = tmp_path / checkout
    assert policy.display(write(there / "gat.py")) == "gat.py"
    write(there / "src/acme/__init__.py")
    write(there / "src/acme/ops/__init__.py")
    assert policy.display(write(there / "src/acme/ops/sort.py")) == "acme/ops/sort.py", "as where it is installed"
    write(there / "pyproject.toml")
    assert policy.display(write(there / "scripts/lib/train.py")) == "scripts/lib/train.py", "as its own project does"
    write(there / "__init__.py")
    assert policy.display(write(there / "model.py")) == "model.py", "a checkout that is a package has no fixed name"


def test_a_link_to_the_project_names_files_as_the_project_does(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    assert SitePolicy(link).display(str(link / "model.py")) == "model.py"


def test_the_sites_text_is_the_source_line_without_its_indentation(root: Path) -> None:
    file = root / "model.py"
    file.write_text("def f(x):\n    return x.sort()\n")
    assert SitePolicy(root).site(str(file), 2) == Site(file="model.py", line=2, code="return x.sort()")
    assert SitePolicy(root).site(str(file), 99).code == ""


def test_the_project_root_is_the_nearest_folder_that_looks_like_one(root: Path) -> None:
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    assert project_root(inner) == root
    (root / "a" / ".git").mkdir()
    assert project_root(inner) == root / "a"


def test_without_a_project_the_root_is_what_the_check_and_its_files_have_in_common(tmp_path: Path) -> None:
    checks = tmp_path / "proj" / "configs"
    checks.mkdir(parents=True)
    assert project_root(checks) == checks
    assert project_root(checks, [checks / "w.py"]) == checks
    assert project_root(checks, [checks.parent / "w.py"]) == tmp_path / "proj"
    assert project_root(checks, [checks.parent / "src/a.py", checks.parent / "b.py"]) == tmp_path / "proj"
    (checks / "setup.cfg").touch()
    assert project_root(checks, [checks.parent / "w.py"]) == checks, "a project's top is one whatever lies outside"


def test_a_home_folder_and_a_disk_are_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "alice"))
    checks = tmp_path / "home" / "alice" / "checks"
    checks.mkdir(parents=True)
    for file in (checks.parent / "net/w.py", tmp_path / "home/bob/w.py", Path("/w.py")):
        assert project_root(checks, [file]) == checks


def test_the_project_root_of_a_relative_folder_is_found_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = root / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert project_root(Path()) == root


def test_a_file_name_that_is_not_utf_8_is_still_a_name(root: Path) -> None:
    assert SitePolicy(root).display(str(root / "mod\udce9le.py")) == "mod\\udce9le.py"
