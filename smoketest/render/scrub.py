"""Names of people and machines taken out of a report, before it is rendered or written anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from smoketest.findings.report import Report

__all__ = ["scrub", "scrub_report"]

# Names that many machines and accounts share tell nobody apart, and are words of our own texts besides.
_GENERIC = frozenset({
    "admin", "aws", "azureuser", "build", "ci", "coder", "cpu", "data", "dev", "device", "docker", "ec2-user", "gitpod",
    "home", "host", "jovyan", "local", "localhost", "localhost.localdomain", "model", "neuron", "nobody", "python",
    "pytorch", "root", "runner", "sagemaker-user", "smoketest", "test", "torch", "trainium", "trn2", "trn3", "ubuntu",
    "user", "vagrant", "vscode", "work",
})  # fmt: skip

# Names of the report's own vocabulary and of PyTorch's: a user called "forward" must not change what these say.
_STRUCTURAL = frozenset({
    "called_as", "class", "compile", "continued_past", "created", "direction", "eager", "grounds", "id",
    "kind", "modules", "op", "phase", "role", "rule", "schema_version", "shapes", "stage", "status", "verdict",
    "witnesses",
})  # fmt: skip
_OTHER_HOMES = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s:'\"<>|]+")


def scrub(text: str, *, home: str, user: str, host: str) -> str:
    """`text` with the home folder as ``~``, the user's name as ``<user>`` and the host's as ``<host>``.

    Names are found as whole words, in any case for the host. Names that many machines share, such as ``root`` or
    ``ubuntu``, tell nobody apart and stay. Lone surrogates, which no JSON can hold, become escapes.

    Args:
        text: any text.
        home: absolute path of the home folder; empty where there is none.
        user: login name; empty where there is none.
        host: host name, with or without its domain; empty where there is none.
    """
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    root = home.rstrip("/\\")
    if root:
        text = re.sub(rf"(?<![\w./]){re.escape(root)}(?![\w-])", "~", text)
    text = _OTHER_HOMES.sub("~", text)
    if host.lower() not in _GENERIC:
        for name in dict.fromkeys((host, host.partition(".")[0])):
            text = _replace(text, name, "<host>", re.IGNORECASE)
    if user not in _GENERIC:
        text = _replace(text, user, "<user>", 0)
    return text


def scrub_report(report: Report, *, home: str, user: str, host: str) -> Report:
    """The report with every text in it scrubbed, but for names that are op names, enumerations or identities."""

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return scrub(value, home=home, user=user, host=host)
        if isinstance(value, Mapping):
            return {key: inner if key in _STRUCTURAL and _plain(inner) else walk(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [walk(inner) for inner in value]
        return value

    return Report.model_validate(walk(report.model_dump(by_alias=True)))


def _plain(value: Any) -> bool:
    """Whether a structural key holds names only, not a part of the report that happens to be called so."""
    return not isinstance(value, Mapping)


def _replace(text: str, name: str, by: str, flags: int) -> str:
    """Whole words only; an underscore ends a word here, since ``alice_data`` names Alice.

    One or two letters are a name only in a path or before an ``@``.
    """
    if not name:
        return text
    if len(name) < 3:
        return re.sub(rf"(?<=/){re.escape(name)}(?=/|$)|(?<![\w.]){re.escape(name)}(?=@)", by, text, flags=flags)
    return re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", by, text, flags=flags)
