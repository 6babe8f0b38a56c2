"""What process groups of the device ask for, from ``collective_rules.yaml``: data with its sources."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict

__all__ = ["CollectiveRule", "check", "named", "rules"]

_DOWNCAST = re.compile(r"--implicit-integer-downcast[= ](\S+)")


class CollectiveRule(BaseModel):
    """One rule.

    Attributes:
        what: its name.
        message: of the exception, to be filled in by `str.format`.
        wording: whether the message is the device's, as reported, or ours.
        effect: what happens on the device.
        source: where that is from.
        grade: evidence grade of it.
        ops: c10d ops it is of, without namespace, as patterns.
        dtypes: names of those that break it; empty: the dtype does not matter.
        sizes: numbers of ranks it takes; empty: any.
        multiples_of: it takes multiples of this many ranks as well.
        group: ``default`` where any other process group breaks it.
        lifted_by: value of ``--implicit-integer-downcast`` that lifts it.
        raises: name of the exception's class; None where the emulated device only tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    message: str
    wording: Literal["reported", "ours"]
    effect: str
    source: str
    grade: Literal["PUB", "USER-B4", "PRE", "INFER"]
    ops: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    multiples_of: int | None = None
    group: Literal["default"] | None = None
    lifted_by: str | None = None
    raises: Literal["AssertionError", "RuntimeError", "ValueError"] | None = None

    def error(self, **filled: object) -> Exception:
        """What the device raises, or the nearest thing to it where its words are not known."""
        kind: type[Exception] = getattr(builtins, self.raises or "RuntimeError")
        return kind(self.message.format(**filled))

    def takes(self, size: int) -> bool:
        """Whether a group of so many ranks is one of those that the rule names."""
        return size in self.sizes or (self.multiples_of is not None and size % self.multiples_of == 0)

    def is_lifted(self) -> bool:
        """Whether the user gave the compiler the option that lifts it."""
        given = _DOWNCAST.findall(os.environ.get("NEURON_CC_FLAGS", ""))
        return self.lifted_by is not None and any({"all", self.lifted_by} & set(one.split(",")) for one in given)


@cache
def rules() -> tuple[CollectiveRule, ...]:
    """All rules, in the order of the file."""
    text = (resources.files("smoketest.devices.emulated") / "data" / "collective_rules.yaml").read_text("utf-8")
    return tuple(CollectiveRule.model_validate(entry) for entry in yaml.safe_load(text))


def named(what: str) -> CollectiveRule:
    """The rule of that name."""
    return next(rule for rule in rules() if rule.what == what)


def check(op: str, dtypes: Sequence[str], size: int, is_default: bool) -> None:
    """Raise what the device raises where it refuses a collective.

    Args:
        op: c10d op without namespace, ``allreduce_``.
        dtypes: of its tensors, ``float32``.
        size: number of ranks in the process group.
        is_default: whether that is the default one.
    """
    for rule in rules():
        if not any(fnmatchcase(op, pattern) for pattern in rule.ops):
            continue
        dtype = next((dtype for dtype in dtypes if dtype in rule.dtypes), None)
        if rule.dtypes and dtype is None:
            continue
        if rule.sizes and rule.takes(size):
            continue
        if (rule.group == "default" and is_default) or rule.is_lifted():
            continue
        raise rule.error(op=op.strip("_"), dtype=dtype, size=size)
