"""What a failed compilation on a device says: the rule it falls under, op and line, error codes, the last line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from smoketest.probe.limits import limits

__all__ = ["Failure", "read_failure", "remedy_for"]

_CODE = re.compile(r"\bNCC_[A-Z]{3,4}\d{3}\b")
_EXIT = re.compile(r"exit(?:ed with)? (?:code|status) (\d+)")
_LOC = re.compile(r'loc\("([^"]+)":(\d+):\d+\)')
_NAMED = re.compile(r'name = "torch\.(\w+)\.(\w+(?:\.\w+)?)"')
_LEGALIZE = re.compile(r"failed to legalize operation 'torch\.aten\.(\w+(?:\.\w+)?)'")
_HIGHER_ORDER = re.compile(r"Higher-order operation '(\w+)'[^\n]*")
_DYNAMIC = ("Dynamic shapes detected", "DynamicShapeAnalysis", "Unbounded dynamism", "NCC_EMOD025", "statically shaped")
_NEURONX_CC = ("neuronx-cc", "COMPILATION FAILED", "Compilation error occurred on Neuron")
_NOTHING = re.compile(r"^[\s\".'=\-*#]*$|^(python )?stack trace=|^Set TORCHDYNAMO|^For even more|^Traceback|^ +File ")
_LONGEST = 300


@dataclass(frozen=True)
class Failure:
    """One failure, as far as its text tells.

    Attributes:
        rule: NST201 to NST203 or NST206.
        stage: the last one reached.
        sentence: the last line that says something.
        op: the operator named (``aten::lgamma``), or the higher-order one.
        place: file and line named.
        codes: error codes of the Neuron compiler, in order.
        exit_code: of the compiler's process.
    """

    rule: str
    stage: str
    sentence: str
    op: str | None = None
    place: tuple[str, int] | None = None
    codes: tuple[str, ...] = ()
    exit_code: int | None = None


def read_failure(text: str, printed: str = "") -> Failure | None:
    """What the text of an exception tells of a failed compilation or execution; None where it speaks of neither.

    Formats: [PRE] dynamo_spec.json and ErrorHandler.cpp, [USER-B3] and [USER-B4] reports; matched loosely.

    Args:
        text: of the exception, with those of its causes.
        printed: what the process and its children wrote meanwhile: a compiler that is a process of its own may
            leave its error code on the terminal only.
    """
    place = _place(text)
    if any(sign in text for sign in _DYNAMIC):
        sentence = next((line for line in text.splitlines() if any(sign in line for sign in _DYNAMIC[:1])), "")
        return Failure("NST206", "captured", _cut(sentence) or _last_line(text), place=place)
    higher_order = _HIGHER_ORDER.search(text)
    if higher_order is not None or "Unimplemented call_function" in text:
        op = higher_order[1] if higher_order is not None else None
        sentence = higher_order[0] if higher_order is not None else _line_with(text, "Unimplemented call_function")
        return Failure("NST202", "captured", _cut(sentence), op, place)
    if "Failed Torch-MLIR" in text or "failed to legalize" in text or "failed with the following diagnostics" in text:
        stage = "torch-backend" if "Backend IR -> StableHLO" in text else "imported"
        sentence = _line_with(text, "error:").rpartition("error: ")[2]
        return Failure("NST201", stage, _cut(sentence) or _last_line(text), _op(text), place)
    if any(sign in text for sign in _NEURONX_CC):
        codes = tuple(dict.fromkeys(_CODE.findall(text) or _CODE.findall(printed)))
        exit_code = _EXIT.search(text)
        said = _last_line(text) if _CODE.search(text) or not codes else _line_with(printed, codes[-1])
        return Failure("NST203", "stablehlo", _cut(said), None, place, codes, int(exit_code[1]) if exit_code else None)
    if "NRT" in text:
        return Failure("NST203", "compiled", _last_line(text))
    if "Neuron backend NEFF execution setup failed" in text or "not supported in torch.compile on Neuron" in text:
        return Failure("NST202", "captured", _last_line(text), place=place)
    return None


def remedy_for(codes: tuple[str, ...]) -> str | None:
    """What is documented against the first of these codes that anything is known of."""
    known = _remedies()
    return next((known[code] for code in codes if code in known), None)


@cache
def _remedies() -> dict[str, str]:
    by_code = {code: limit.remedy for limit in limits().values() for code in _CODE.findall(limit.code)}
    data = resources.files("smoketest.probe") / "data" / "compiler_errors.yaml"
    entries: list[dict[str, Any]] = yaml.safe_load(data.read_text("utf-8"))
    return {code: str(entry["remedy"]) for entry in entries for code in entry["codes"]} | by_code


def _place(text: str) -> tuple[str, int] | None:
    found = _LOC.search(text)
    return (found[1], int(found[2])) if found else None


def _op(text: str) -> str | None:
    found = _NAMED.search(text)
    if found is not None:
        return f"{found[1]}::{found[2]}"
    known = _LEGALIZE.search(text)
    return f"aten::{known[1]}" if known is not None else None


def _line_with(text: str, sign: str) -> str:
    return next((line.strip() for line in text.splitlines() if sign in line), "")


def _last_line(text: str) -> str:
    """The last line that says something, without the words around it."""
    lines = [line for line in text.splitlines() if not _NOTHING.search(line)]
    last = lines[-1] if lines else text.strip()
    return _cut(last.removeprefix("error message=").strip(' "'))


def _cut(line: str) -> str:
    return line.strip() if len(line.strip()) <= _LONGEST else line.strip()[-_LONGEST:]
