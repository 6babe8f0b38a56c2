"""Errors of the user's own code: their frames, their line, one sentence."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Any

from smoketest.errors import Place, UserCodeError, without_boilerplate
from smoketest.findings import SitePolicy
from smoketest.findings.sites import real_path
from smoketest.workload.advice import hint_for

__all__ = [
    "blame_user",
    "of_user_code",
    "place_of",
    "shown_path",
    "summary_of",
    "users_line",
    "users_place",
    "users_traceback",
]

_MESSAGE_LIMIT = 600
_TRACEBACK_LIMIT = 8_000
_PACKAGE = Path(__file__).resolve().parent.parent
_CALLS_IT = Path(__file__).resolve().parent
_USERS, _LIBRARY = 2, 1


def blame_user(error: BaseException, what: str, *, hint: str | None = None) -> UserCodeError:
    """The error to raise when user code raised `error`.

    Args:
        error: what their code raised; its traceback is cut to their frames.
        what: what was being done, such as ``make_model() of models.py``.
        hint: what to do about it; that of `hint_for`, if it has one, where none is given.
    """
    return UserCodeError(
        f"{what} raised {summary_of(error)}",
        traceback=users_traceback(error),
        place=users_place(error),
        hint=hint or hint_for(summary_of(error)),
    )


def summary_of(error: BaseException) -> str:
    """Type and text of an exception on one bounded line; its text may be code of the user's, and fail."""
    try:
        text = without_boilerplate(" ".join(str(error).split()))
    except BaseException as failure:
        text = f"(its text cannot be had: __str__ raised {type(failure).__name__})"
    if len(text) > _MESSAGE_LIMIT:
        text = text[: _MESSAGE_LIMIT - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def users_traceback(error: BaseException) -> str:
    """The formatted traceback of `error` and its causes, without our frames and without those of PyTorch.

    PyTorch's frames are kept only where there is nothing else to show. Files are named as in findings: the user's own
    relative to the working directory, those of libraries from the package on. An error that came while the same one
    was handled (a step made again on plain CPU) is shown once.
    """
    whole = TracebackException.from_exception(error)
    for part in _chain(whole):
        part.stack = StackSummary.from_list(_users_frames(part.stack))
        for frame in part.stack:
            _ = frame.line  # read before its file has another name
            frame.filename = _short_name(frame.filename)
    for part in _chain(whole):
        _drop_repeated(part)
    text = "".join(whole.format())
    return text if len(text) <= _TRACEBACK_LIMIT else "[…]\n" + text[-_TRACEBACK_LIMIT:]


def users_place(error: BaseException) -> Place | None:
    """The innermost line of the user's own that was running when `error` was raised; None where there is none."""
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return Place(shown_path(error.filename), error.lineno, error.offset)
    line = users_line(error)
    return Place(shown_path(line[0]), line[1]) if line is not None else None


def users_line(error: BaseException) -> tuple[str, int] | None:
    """File and line of the innermost frame of the user's own, else of a library, in the traceback of `error`."""
    frames = traceback.extract_tb(error.__traceback__)
    for rank in (_USERS, _LIBRARY):
        for frame in reversed(frames):
            if _rank(frame.filename) == rank and frame.lineno is not None:
                return frame.filename, frame.lineno
    return None


def of_user_code(error: BaseException) -> bool:
    """Whether user code was running when `error` was raised: `workload` calls it, or a line of it is in the traceback.

    An error with neither is a mistake of this package.
    """
    frames = traceback.extract_tb(error.__traceback__)
    return any(_rank(frame.filename) >= _LIBRARY or Path(frame.filename).parent == _CALLS_IT for frame in frames)


def place_of(function: Callable[..., Any]) -> Place | None:
    """The line one of the user's own functions begins at; None for any other."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or _rank(code.co_filename) != _USERS:
        return None
    return Place(shown_path(code.co_filename), code.co_firstlineno)


def shown_path(file: str | Path) -> str:
    """A path as a person would type it: relative to the working directory where it is below it."""
    path = Path(file)
    try:
        return str(real_path(path).relative_to(real_path(Path.cwd())))
    except (ValueError, OSError):  # it is elsewhere, or user code removed the current folder
        return str(path)


def _short_name(file: str) -> str:
    """The file as findings name it, where it is a library's; else as a person would type it."""
    shown = shown_path(file)
    is_library = any(part in ("site-packages", "dist-packages") for part in Path(file).parts)
    return _policy.display(file) if is_library else shown


def _drop_repeated(part: TracebackException) -> None:
    """Take the error out that was being handled, where it is the same error at the same line."""
    context = part.__context__
    if part.__cause__ is None and context is not None and _last_words(context) == _last_words(part):
        part.__context__ = context.__context__


def _last_words(part: TracebackException) -> tuple[str, str | None, int | None]:
    frame = part.stack[-1] if part.stack else None
    return "".join(part.format_exception_only()), frame and frame.filename, frame and frame.lineno


def _users_frames(stack: StackSummary) -> list[FrameSummary]:
    theirs = [frame for frame in stack if _rank(frame.filename) >= _LIBRARY]
    return theirs or [frame for frame in stack if not _is_ours(frame.filename)]


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen ") or real_path(file).is_relative_to(_PACKAGE)


def _chain(first: TracebackException) -> list[TracebackException]:
    """The exception with its causes and contexts, groups included."""
    found: list[TracebackException] = []
    waiting: list[TracebackException | None] = [first]
    while waiting:
        part = waiting.pop()
        if part is not None and part not in found:
            found.append(part)
            waiting += [part.__cause__, part.__context__, *(part.exceptions or ())]
    return found


_policy = SitePolicy(Path.cwd())  # which files are the user's does not depend on the root
_rank = _policy.rank
