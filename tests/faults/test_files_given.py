"""A check may be any file whatever: it is read in no time and little memory, or refused in one message."""

from __future__ import annotations

import resource

import pytest

from tests.faults.harness import Stage

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 20)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
HOSTILE = {
    "aliases of aliases": (LAUGHS.encode(), "more than 50,000 values once its aliases are expanded"),
    "merges of merges": (MERGES.encode(), ""),
    "an alias of itself": (b"model: &a {args: [*a]}\n", "nested more than 40 levels deep"),
    "lists in lists": (b"model: " + b"[" * 20_000, "nested too deeply"),
    "mappings in mappings": (b"{a: " * 50_000, "nested too deeply"),
    "indentation": (b"".join(b" " * n + b"a:\n" for n in range(1000)), ""),
    "anchors": (b"".join(b"a%d: &a%d x\n" % (n, n) for n in range(4_000)), ""),
    "one long line": (b"name: " + b"x" * (2**20 - 10), ""),
    "a long number": (b"training: {steps: " + b"9" * 100_000 + b"}", ""),
    "sexagesimals": (b"training: {steps: " + b"1:" * 50_000 + b"1}", ""),
    "a NUL": (b"model: {target: 'net.py:\0Net'}\n", ""),
    "an UTF-16 text": ("model: {target: net.py:Net}\n".encode("utf-16"), "not UTF-8 text"),
    "a PNG": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10, "not UTF-8 text"),
    "a tag": (b"!!python/object/apply:os.system ['touch /tmp/owned']\n", ""),
    "nothing": (b"", "the file is empty"),
    "comments": (b"# nothing\n" * 10_000, "the file is empty"),
    "two documents": (b"name: a\n---\nname: b\n", ""),
}
PATIENCE = 20
MEMORY = 2**30


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_check_is_refused_in_one_message(stage: Stage, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from smoketest.cli.app import app
    from smoketest.errors import ConfigError

    data, words = HOSTILE[what]
    (stage.work / "c.yaml").write_bytes(data)
    monkeypatch.chdir(stage.work)
    before = resource.getrusage(resource.RUSAGE_SELF)
    done = CliRunner().invoke(app, ["validate", "c.yaml"])
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert not isinstance(done.exception, ConfigError), "it has become a message"
    assert done.exit_code == 2
    assert done.stderr.startswith("error: c.yaml")
    assert words in done.stderr
    assert len(done.stderr) < 5_000
    assert after.ru_utime - before.ru_utime < PATIENCE


def test_a_hundred_megabytes_are_not_read(stage: Stage) -> None:
    """Neither in time nor in memory: the command gets 512 MiB, and is started as it is."""
    with (stage.work / "net.yaml").open("wb") as file:
        for _ in range(100):
            file.write(b"- text\n" * (2**20 // 7))
    ended = stage.run("run", "net.yaml", before="ulimit -v 524288;", timeout=60)
    assert ended.code == 2
    assert ended.err == "error: net.yaml: larger than 1 MiB, which no check is\n"


@pytest.mark.parametrize("change", ["CRLF", "BOM", "CR"])
def test_an_editor_of_another_system_changes_nothing(stage: Stage, change: str) -> None:
    from smoketest.config.load import load_check

    path = stage.check()
    plain = load_check(path)
    text = path.read_text()
    changed = {
        "CRLF": text.replace("\n", "\r\n").encode(),
        "BOM": text.encode("utf-8-sig"),
        "CR": text.replace("\n", "\r").encode(),
    }[change]
    path.write_bytes(changed)
    assert load_check(path) == plain


def test_a_check_that_is_no_text_is_an_error_of_its_own_among_others(stage: Stage) -> None:
    (stage.work / "a.yaml").write_bytes(b"\xff\xfe\0")
    (stage.work / "b.yaml").write_bytes(LAUGHS.encode())
    stage.without_workers()
    stage.check("c")
    ended = stage.run("run", ".", "--no-compile")
    assert ended.code == 5, "the worst of them"
    assert ended.report("c")["eager"]["status"] == "crashed"
    assert [line.split(":")[1] for line in ended.errors] == [" a.yaml", " b.yaml"]
