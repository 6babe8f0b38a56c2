"""The exceptions of the package; each ends in one message and one exit code.

SmoketestError
├── ConfigError        exit 2: the check is wrong, and no user code was run to find out
│   └── ProfileError           an operator profile cannot be read
├── UserCodeError      exit 4: the user's own code raises, or gives something that is not usable
├── DeviceUnavailable  exit 3: the device asked for cannot be used on this machine
├── DoesNotFit         exit 3: this machine has not the memory that the model needs
├── TorchUnusable      exit 3: PyTorch cannot be loaded
└── InternalError      exit 5: a fault of this package
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ConfigError",
    "DeviceUnavailable",
    "DoesNotFit",
    "InternalError",
    "Place",
    "ProfileError",
    "SmoketestError",
    "TorchUnusable",
    "UserCodeError",
    "without_boilerplate",
]


@dataclass(frozen=True)
class Place:
    """Where in a file a mistake is; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


_LONGEST = 4_000
"""Characters of a message: it may quote a value of the user's, which may be of any length."""


def _cut(text: str) -> str:
    """The text, without its middle where it is very long."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


class SmoketestError(Exception):
    """Base of all errors of this package.

    Args:
        message: what was wrong and what was expected, one sentence.
        place: where it is, if it is in a file.
        hint: the next thing to type or to change.
    """

    exit_code = 5

    def __init__(self, message: str, *, place: Place | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = _cut(message)
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        head = f"{self.place}: {self.message}" if self.place else self.message
        return f"{head}\n  hint: {self.hint}" if self.hint else head


class ConfigError(SmoketestError):
    """The check is wrong, found without running any user code.

    Attributes:
        others: further mistakes of the same check, each with its own place.
    """

    exit_code = 2
    others: tuple[ConfigError, ...] = ()


class ProfileError(ConfigError):
    """An operator profile is missing or cannot be read."""


class UserCodeError(SmoketestError):
    """The user's own code raises, or gives what is not a module, a tensor or a scalar loss.

    Args:
        message: what happened, one sentence.
        traceback: the user's own frames, already cut and formatted; empty when their code did not raise.
        place: the line of theirs it happened at.
        hint: what to change.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, traceback: str = "", place: Place | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, place=place, hint=hint)
        self.traceback = traceback


class DeviceUnavailable(SmoketestError):
    """The device asked for cannot be used on this machine."""

    exit_code = 3


class DoesNotFit(SmoketestError):
    """This machine has not the memory that the model needs.

    The environment is what is not fit: the same check is right on a larger machine, and finding out takes running the
    user's constructor, which a mistake in the check (exit 2) never does.
    """

    exit_code = 3


class TorchUnusable(SmoketestError):
    """PyTorch cannot be loaded: it is broken, or there is not the memory for it."""

    exit_code = 3


class InternalError(SmoketestError):
    """A fault of this package."""


def without_boilerplate(text: str) -> str:
    """PyTorch's message about a kernel that is missing, up to the advice to its own staff and the list of backends.

    What it says of the op is in the first sentence; any other text is given back as it is.
    """
    return text.partition(" This could be because the operator doesn't exist for this backend")[0]
