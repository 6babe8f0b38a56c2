from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import SAMPLES, base, seen

from smoketest.findings import NotChecked, Site, merge
from smoketest.findings.report import EagerPart, Environment
from smoketest.render.scrub import scrub, scrub_report


def clean(text: str, *, home: str = "/home/alice", user: str = "alice", host: str = "box7.lab.example") -> str:
    return scrub(text, home=home, user=user, host=host)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/alice/work/model.py:12", "~/work/model.py:12"),
        ("in /home/alice", "in ~"),
        ('File "/home/alice/x.py", line 3', 'File "~/x.py", line 3'),
        ("PATH=/home/alice/bin:/home/alice/.local/bin", "PATH=~/bin:~/.local/bin"),
        ("/home/alice2/x", "~/x"),
        ("/home/bob/x and /Users/carol/y", "~/x and ~/y"),
        ("/mnt/data/alice/run", "/mnt/data/<user>/run"),
        ("/data/alice_runs", "/data/<user>_runs"),
        ("malice and alicexander stay", "malice and alicexander stay"),
        ("ssh alice@box7.lab.example", "ssh <user>@<host>"),
        ("on BOX7: refused", "on <host>: refused"),
        ("box77 is another", "box77 is another"),
        ("nothing here", "nothing here"),
        ("", ""),
    ],
)
def test_home_user_and_host_are_taken_out_as_whole_words(text: str, expected: str) -> None:
    assert clean(text) == expected


@pytest.mark.parametrize("user", ["root", "ubuntu", "ec2-user", "runner"])
def test_names_that_tell_nobody_apart_stay(user: str) -> None:
    assert clean(f"the {user} cause", user=user) == f"the {user} cause"


def test_one_letter_names_are_names_only_in_a_path_or_an_address() -> None:
    assert clean("a tensor in /data/a/x, a@host", user="a") == "a tensor in /data/<user>/x, <user>@host"


def test_empty_names_take_nothing_out() -> None:
    assert scrub("some text", home="", user="", host="") == "some text"
    assert scrub("/some/text", home="/", user="", host="") == "/some/text"


def test_names_are_taken_literally() -> None:
    assert clean("a+b c.d", user="a+b", host="c.d") == "<user> <host>"


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_comes_out_as_text_that_json_can_hold(text: str) -> None:
    clean(text).encode("utf-8")


def test_every_text_of_a_report_is_scrubbed() -> None:
    secret = "/home/alice/x on box7 by alice"
    findings = merge(
        seen(
            "aten::sort",
            1,
            secret,
            "reported",
            1,
            1,
            message=secret,
            remedy=secret,
            site=Site(file=secret, line=1, code=secret),
        )
    )
    report = base(
        "mine",
        headline=secret,
        environment=Environment(platform=secret, settings={"NEURON_CC_FLAGS": secret}),
        eager=EagerPart(status="failed", reason=secret),
        not_checked=(NotChecked(what=secret, why=secret),),
        findings=findings,
        command=secret,
    )
    text = scrub_report(report, home="/home/alice", user="alice", host="box7").to_json()
    assert "alice" not in text
    assert "box7" not in text
    assert text.count("~/x on <host> by <user>") == 11


@pytest.mark.parametrize("user", ["aten", "forward", "fallback", "dispatch", "emulated", "failed", "sort"])
def test_a_user_called_like_an_op_or_a_status_changes_neither(user: str) -> None:
    report = SAMPLES["equivariant"]()
    scrubbed = scrub_report(report, home="", user=user, host=user)
    assert [f.op for f in scrubbed.findings] == [f.op for f in report.findings]
    assert [f.id for f in scrubbed.findings] == [f.id for f in report.findings]
    assert scrubbed.eager == report.eager
    assert scrubbed.device.kind == "emulated"
