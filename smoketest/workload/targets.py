"""From ``package.module:callable`` or ``path/to/file.py:callable`` to the object itself."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from smoketest.errors import Place, UserCodeError
from smoketest.extras import install
from smoketest.findings.sites import real_path
from smoketest.workload.usercode import blame_user, shown_path

__all__ = ["call_target", "defined_at", "find", "load_file", "resolve"]

_INSTALL = {"transformers": install("hf")}


def resolve(target: str) -> Callable[..., Any]:
    """The callable that `target` names, its module imported.

    Raises:
        UserCodeError: the import raises, the name is not there, or what it names cannot be called.
    """
    found, module = find(target)
    if not callable(found):
        raise UserCodeError(
            f"{target!r} is not callable: it is {_a_type(found)}",
            place=_file_of(module),
            hint="name a function or a class",
        )
    result: Callable[..., Any] = found
    return result


def find(target: str) -> tuple[Any, ModuleType]:
    """The object that `target` names, whatever it is, and the module it was found in, imported.

    Raises:
        UserCodeError: the import raises, or the name is not there.
    """
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise UserCodeError(
            f"{target!r} is not a target", hint="write package.module:callable, or path/to/file.py:callable"
        )
    module = load_file(Path(where)) if where.endswith(".py") else _import_module(where)
    found: Any = module
    for part in name.split("."):
        found = _attribute(found, part, target, module)
    return found, module


def defined_at(target: str) -> tuple[tuple[str, int], ...]:
    """(absolute file, line) of what `target` names; of an object that is no function or class, its module's first line.

    Raises as `find`.
    """
    found, module = find(target)
    try:
        file, (_, line) = inspect.getsourcefile(found), inspect.getsourcelines(found)
    except (TypeError, OSError):
        file, line = getattr(module, "__file__", None), 1
    return ((str(real_path(file)), max(line, 1)),) if file is not None else ()


def call_target(target: str, *args: Any, **kwargs: Any) -> Any:
    """What `target` returns for these arguments. Raises `UserCodeError` where it cannot be had."""
    function = resolve(target)
    try:
        return function(*args, **kwargs)
    except UserCodeError:
        raise
    except BaseException as error:
        raise blame_user(error, f"calling {_short(target)}") from error


def load_file(path: Path) -> ModuleType:
    """The module in the Python file `path`, imported once.

    A file inside a package is imported as part of it, so that its relative imports work; any other file sees the
    modules beside it, as a script would.

    Raises:
        UserCodeError: there is no such file, or it raises.
    """
    return _load_file(path.resolve())


@cache
def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserCodeError(f"there is no file {shown_path(path)}", hint="check the path in the check's YAML")
    top, dotted = _package_of(path)
    if str(top) not in sys.path:
        sys.path.insert(0, str(top))
    if "." in dotted:
        return _import_module(dotted)
    name = dotted if dotted not in sys.modules else f"smoketest_workload_{dotted}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserCodeError(f"{shown_path(path)} cannot be imported", hint="it must be a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise blame_user(error, f"importing {shown_path(path)}", hint=_hint_for(error)) from error
    return module


def _package_of(path: Path) -> tuple[Path, str]:
    """The folder to import from, and the dotted name of the module there."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(parts)


def _import_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        raise blame_user(error, f"importing {name}", hint=_hint_for(error)) from error


def _attribute(owner: Any, part: str, target: str, module: ModuleType) -> Any:
    try:
        return getattr(owner, part)
    except AttributeError as error:
        close = difflib.get_close_matches(part, dir(owner), n=1)
        raise UserCodeError(
            f"{_short(target)}: there is no {part!r} in {getattr(owner, '__name__', 'it')}",
            place=_file_of(module),
            hint=f"did you mean {close[0]!r}?" if close else "check the name after the colon",
        ) from error
    except BaseException as error:  # a lazily loaded name can raise anything
        raise blame_user(error, f"importing {target}", hint=_hint_for(error)) from error


def _hint_for(error: BaseException) -> str | None:
    """What to do about a module that is not there. Its distribution often has another name: cv2 is opencv-python."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package, _, rest = error.name.partition(".")
    if package in _INSTALL:
        return f"install it: {_INSTALL[package]}"
    if rest and package in sys.modules:
        return f"{package} is there, but has no module {rest}: is it the release you need?"
    return (
        f"is {package} yours? Modules are looked for in the folder of the workload file and in the current folder "
        f"({Path.cwd()}). If it is not, install the distribution that provides it"
    )


def _file_of(module: ModuleType) -> Place | None:
    file = getattr(module, "__file__", None)
    return Place(shown_path(file)) if file else None


def _short(target: str) -> str:
    where, _, name = target.rpartition(":")
    return f"{shown_path(where)}:{name}" if where.endswith(".py") else target


def _a_type(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
