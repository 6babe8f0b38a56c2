"""The commands as typed, but for `run`: what they print where, and how they end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from smoketest.findings.report import (
    CompilePart,
    DeviceInfo,
    EagerPart,
    Environment,
    ParityPart,
    Report,
    WorkloadInfo,
)

ROOT = Path(__file__).parents[2]


def smoketest(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "smoketest", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("arguments", [
    ["--help"], ["run", "--help"], ["init", "--help"], ["explain", "NST101"], ["explain", "aten::sort"],
    ["validate", "configs/gpt2.yaml"], ["--version"], ["schema"],
    ["schema", "--report"],
])  # fmt: skip
def test_commands_that_run_nothing_import_no_torch(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom smoketest.cli import main\nsys.argv[0] = 'smoketest'\n"
        "try:\n    main()\nfinally:\n    assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_imports_no_pydantic_and_no_rich() -> None:
    """They take as long as all the rest of ``--help``."""
    code = (
        "import sys\nfrom smoketest.cli import main\n"
        "try:\n    main()\nfinally:\n    assert not {'pydantic', 'rich', 'yaml', 'jinja2'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_commands_and_options_of_this_version() -> None:
    """A new one is a decision, taken here."""
    from typer.main import get_command

    from smoketest.cli.app import app

    def options(command: Any) -> Any:
        if hasattr(command, "commands"):
            return {name: options(inner) for name, inner in command.commands.items()}
        return sorted(o for p in command.params for o in p.opts if o.startswith("-"))

    seen = options(get_command(app))
    assert seen == {
        "run": ["--baseline", "--debug", "--device", "--format", "--junit", "--no-compile", "--nproc", "--output",
                "--plan-steps", "--price-per-hour", "--quiet", "--set", "--steps", "--stop-at-error",
                "--strict-baseline", "--strict-limits", "--update-baseline", "-q"],
        "script": ["--debug", "--device", "--format", "--map-cuda", "--name", "--output", "--probe", "--quiet",
                   "--steps", "--timeout", "--warmup", "-q"],
        "init": ["--force", "--output", "--timeout"],
        "validate": ["--set"],
        "show": ["--format"],
        "compare": ["--format"],
        "explain": ["--profile"],
        "schema": ["--report", "--summary"],
        "doctor": ["--format"],
        "operators": {"list": ["--cpu", "--profile"], "diff": [], "export": ["--device", "--profile"]},
    }  # fmt: skip


def test_version() -> None:
    done = smoketest("--version")
    assert (done.returncode, done.stdout) == (0, "smoketest 0.1.0\n")


def test_validate_says_ok_of_each_check_to_the_person() -> None:
    done = smoketest("validate", "configs")
    assert done.returncode == 0
    assert done.stdout == ""
    names = [path.stem for path in sorted((ROOT / "configs").glob("*.yaml"))]
    assert {"bert", "equivariant", "gpt2", "resnet"} < set(names)
    assert done.stderr.splitlines() == [f"configs/{name}.yaml: ok ({name})" for name in names]


def test_validate_goes_on_past_a_check_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: [\n")
    (tmp_path / "b.yaml").write_text(
        (ROOT / "configs/gpt2.yaml").read_text().replace("workloads/", f"{ROOT}/configs/workloads/")
    )
    done = smoketest("validate", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "error: a.yaml:2:1: not valid YAML: while parsing a flow node, expected the node content,"
        " but found '<stream end>'\nb.yaml: ok (gpt2)\n"
    )


@pytest.mark.parametrize(("arguments", "words"), [
    (["run"], "Missing argument"),
    (["run", "configs/gpt2.yaml", "--device", "tpu"], "'tpu'"),
    (["run", "configs/gpt2.yaml", "--steps", "0"], "'--steps'"),
    (["run", "configs/gpt2.yaml", "--price-per-hour", "nan"], "expected an amount such as 21.50, found 'nan'"),
    (["run", "configs/gpt2.yaml", "--format", "json"], "json goes to stdout and needs --output -"),
    (["run", "configs/gpt2.yaml", "--formt", "json"], "No such option: --formt"),
    (["runn"], "No such command 'runn'"),
    (["explain", "NST1O1"], "error: there is no rule 'NST1O1'\n  hint: did you mean 'NST101'?"),
    (["run", "nothere"], "error: nothere: no such file"),
    (["show", "nothere.json"], "error: nothere.json: cannot be read: No such file or directory"),
])  # fmt: skip
def test_a_wrong_command_line_ends_in_exit_2_and_a_message_on_stderr(arguments: list[str], words: str) -> None:
    done = smoketest(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_explain_shows_the_page_of_a_rule() -> None:
    done = smoketest("explain", "nst101")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "NST101: op ran on the CPU\n\nClass `fallback`. Denied where the grounds are firm, else a warning.\n\n"
    )
    assert "gate: {fallback: warn}" in done.stdout
    assert "    scale = torch.rsqrt(x * x + y * y)\n" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.fixture
def report(tmp_path: Path) -> Path:
    shown = Report(
        name="shown", created="2026-12-01T00:00:00Z", status="pass", exit_code=0, headline="clean: no denied finding",
        device=DeviceInfo(kind="emulated", profile="p"), environment=Environment(), workload=WorkloadInfo(),
        eager=EagerPart(status="ran"), compile=CompilePart(status="ran"), parity=ParityPart(status="skipped"),
    )  # fmt: skip
    (tmp_path / "report.json").write_text(shown.to_json())
    return tmp_path


@pytest.mark.parametrize("form", ["terminal", "json", "markdown", "html", "sarif"])
def test_show_prints_a_report_on_stdout(report: Path, form: str) -> None:
    done = smoketest("show", str(report), "--format", form)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "clean: no denied finding" in done.stdout
    if form == "json":
        assert json.loads(done.stdout)["name"] == "shown"


def test_show_refuses_what_is_not_a_report(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1')
    done = smoketest("show", str(tmp_path / "x.json"))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path}/x.json: not a report of smoketest")


def test_output_to_a_closed_pipe_is_no_traceback(report: Path) -> None:
    command = f"{sys.executable} -m smoketest show {report} | true"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert done.stderr == ""


def test_an_ascii_locale_can_be_written_to(report: Path) -> None:
    data = json.loads((report / "report.json").read_text())
    data["headline"] = "clean: naïve ✓"
    (report / "report.json").write_text(json.dumps(data))
    command = [sys.executable, "-m", "smoketest", "show", str(report)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, env={"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin"}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert b"na\\xefve" in done.stdout


def test_a_page_on_stdout_is_whole_in_any_locale(report: Path) -> None:
    import html

    data = json.loads((report / "report.json").read_text())
    data["headline"] = "clean: naïve ✓"
    (report / "report.json").write_text(json.dumps(data))
    command = [sys.executable, "-m", "smoketest", "show", str(report), "--format", "html"]
    for encoding in ("ascii", "latin-1", "utf-8"):
        environment = {"PYTHONIOENCODING": encoding, "PATH": "/usr/bin"}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "clean: naïve ✓" in html.unescape(done.stdout.decode("utf-8"))


def test_a_fault_of_ours_is_one_line_and_exit_5(tmp_path: Path) -> None:
    code = (
        "import sys\nimport smoketest.config.load as load\nfrom smoketest.cli import main\n"
        "def broken(paths): raise RuntimeError('broken\\nand more')\nload.find_checks = broken\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "validate", "x"], capture_output=True, text=True)
    assert done.returncode == 5
    assert done.stderr == "internal error: RuntimeError: broken\n  hint: `smoketest --debug ...` shows where\n"


@pytest.mark.parametrize(("arguments", "title"), [
    ([], "A check of smoketest"), (["--report"], "A report of smoketest, schema 1.0"),
    (["--summary"], "A summary of smoketest, schema 1.0"),
])  # fmt: skip
def test_schema_prints_a_json_schema_on_stdout(arguments: list[str], title: str) -> None:
    done = smoketest("schema", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["title"] == title
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "configs", "--device", "cuda"), "'--device': expected auto, neuron, emulated or cpu, found 'cuda'"),
        (("show", "x", "--format", "pdf"), "'--format': expected terminal, json, markdown, html or sarif, found 'pdf'"),
        (("doctor", "--format", "yaml"), "'--format': expected text or json, found 'yaml'"),
    ],
)
def test_a_word_that_is_none_of_an_option_s(arguments: tuple[str, ...], said: str) -> None:
    done = smoketest(*arguments)
    assert done.returncode == 2
    assert done.stderr.endswith(f"Error: Invalid value for {said}\n")


def test_validate_tells_each_mistake_on_a_line_of_its_own_and_at_most_ten(tmp_path: Path) -> None:
    keys = "".join(f"k{number}: 1\n" for number in range(12))
    (tmp_path / "c.yaml").write_text(keys)
    done = smoketest("validate", "c.yaml", cwd=tmp_path)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2
    assert errors[0] == "error: c.yaml:1:1: unknown key 'k0' (and 11 more mistakes)"
    assert errors[9] == "error: c.yaml:10:1: unknown key 'k9'"
    assert (len(errors), done.stderr.splitlines()[-1]) == (10, "… and 2 more")
