"""Operator profiles: which overloads a torch-neuronx release runs itself, as data with its provenance.

Loading a profile imports no torch.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from smoketest.errors import Place, ProfileError

__all__ = ["PACKAGED", "KnownUnsupported", "Limit", "OperatorProfile", "load_profile"]

PACKAGED = "torch-neuronx-prerelease-2026-04"


class KnownUnsupported(BaseModel):
    """Something the release is known to refuse under ``torch.compile``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    why: str
    source: str


class Limit(BaseModel):
    """Something the backend refuses or changes, beyond kernels it has not.

    Attributes:
        what: which limit; the emulated device knows how to make each of them act.
        effect: what happens on the device.
        source: where that is from.
        grade: evidence grade; a limit graded PRE only is noted, and acts under strict limits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: Literal[
        "float64",
        "int64",
        "complex",
        "memory_format",
        "copy_layout",
        "copy_size",
        "copy_destination",
        "fallback_view",
        "fork",
        "forward_ad",
    ]
    effect: str
    source: str
    grade: Literal["PUB", "USER", "PRE"]


class OperatorProfile(BaseModel):
    """What one release (or source tree) of torch-neuronx registers for its device.

    Overloads are written as the dispatcher prints them: ``aten::add.out``, ``aten::mm``.

    Attributes:
        name: what reports call this profile.
        note: one or two sentences on what it can and cannot tell.
        source: where the list was read.
        date: when, as ``YYYY-MM`` or ``YYYY-MM-DD``.
        grade: evidence grade of the whole list.
        torch_version: the PyTorch release the list was made for.
        registered_by: overloads with a kernel of their own, and how it is registered.
        reaches: functional and in-place overloads of structured ops, and the ``.out`` overload whose kernel runs when
            they are called. The tracker knows them by that name.
        recovered_as: overloads with a kernel that are recorded under another name when that kernel fails.
        unimplemented: overloads without kernel and without a composite of PyTorch's: they run on the CPU.
        view_whitelist: names for which the boxed fallback records nothing.
        decompositions: overloads the backend takes apart before it lowers, and whose decomposition it is.
        limits: what the backend refuses or changes in eager mode.
        known_unsupported: what the release is known to refuse under ``torch.compile``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str
    note: str
    source: str
    date: str
    grade: Literal["PUB", "USER", "PRE", "INFER", "EXPORT"]
    torch_version: str
    registered_by: dict[str, str] = Field(alias="native")
    reaches: dict[str, str] = {}
    recovered_as: dict[str, str] = {}
    unimplemented: frozenset[str] = frozenset()
    view_whitelist: frozenset[str] = frozenset()
    decompositions: dict[str, Literal["inherited", "custom", "custom_compile_only"]] = {}
    limits: tuple[Limit, ...] = ()
    known_unsupported: tuple[KnownUnsupported, ...] = ()

    @property
    def native(self) -> frozenset[str]:
        """The overloads with a kernel of their own."""
        return frozenset(self.registered_by)

    def reached(self, overload: str) -> str:
        """The overload whose kernel runs when ``overload`` is called: ``aten::mul.Tensor`` gives ``aten::mul.out``."""
        return overload if overload in self.registered_by else self.reaches.get(overload, overload)

    def is_native(self, overload: str) -> bool:
        """Whether the device runs ``overload`` itself, directly or through the ``.out`` form it reaches."""
        return self.reached(overload) in self.registered_by

    def fallback_name(self, overload: str) -> str | None:
        """The name the tracker records when ``overload`` runs on the CPU.

        None when it does not, when the view whitelist silences it, or when the profile cannot tell because PyTorch
        takes the op apart first.
        """
        name = self.reached(overload)
        falls_back = name != overload or overload in self.unimplemented
        if name in self.registered_by or name in self.view_whitelist or not falls_back:
            return None
        return name


def load_profile(path: Path | None = None) -> OperatorProfile:
    """Read an operator profile.

    Args:
        path: a profile file; the packaged pre-release list of April 2026 when None.

    Raises:
        ProfileError: the file is missing, is no JSON, or does not hold a profile.
    """
    try:
        if path is None:
            text = (resources.files("smoketest.operators") / "data" / f"{PACKAGED}.json").read_text(encoding="utf-8")
        else:
            text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ProfileError(
            f"cannot read this operator profile: {reason}",
            place=Place(str(path or PACKAGED)),
            hint="leave the profile out to use the packaged one",
        ) from error
    return _parse(text, str(path or PACKAGED))


def _parse(text: str, file: str) -> OperatorProfile:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        where = Place(file, error.lineno, error.colno)
        raise ProfileError(f"an operator profile is a JSON file: {error.msg}", place=where) from error
    except RecursionError as error:
        raise ProfileError("an operator profile is not nested that deeply", place=Place(file)) from error
    try:
        profile = OperatorProfile.model_validate(data)
    except ValidationError as error:
        raise ProfileError(f"not an operator profile:\n{_explain(error)}", place=Place(file)) from error
    malformed = sorted(name for name in profile.registered_by if not _is_overload(name))
    if malformed:
        raise ProfileError(
            f"native: {malformed[0]!r} is not the name of an overload",
            place=Place(file),
            hint="write it as aten::add.out or aten::mm",
        )
    return profile


def _is_overload(name: str) -> bool:
    namespace, separator, rest = name.partition("::")
    return bool(separator) and namespace.isidentifier() and all(part.isidentifier() for part in rest.split(".", 1))


def _explain(error: ValidationError) -> str:
    lines = [f"  {'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors()[:5]]
    return "\n".join(lines)
