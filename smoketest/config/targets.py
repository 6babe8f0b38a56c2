"""Whether a target exists, found by reading files: no code of the user's, nor of any package, is run.

A target is ``package.module:callable`` or ``path/to/file.py:callable``. Names are looked up in the syntax tree of the
file. A file that makes its names at run time (a star import, a module ``__getattr__``, writing to ``globals()`` or
``sys.modules``) and a compiled module are taken on trust: the worker will see.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

from smoketest.errors import ConfigError, Place
from smoketest.extras import NEURONX, NEURONX_INDEX, Extra, install

__all__ = ["check_target", "names_in_file", "resolve_path", "suggest", "uncalled_functions"]

_EXTRAS: dict[str, Extra] = {"transformers": "hf", "numpy": "hf", "torch_mlir": "lowering"}
_DYNAMIC = ("sys.modules", "globals()", "exec(", "vars()", "locals()")
MAX_SOURCE = 20 * 2**20


def check_target(target: str, folder: Path, place: Place | None, *, what: str) -> str:
    """Check that a target exists, and return it with its file's path absolute.

    Args:
        target: as written in the check.
        folder: what a relative file name is relative to.
        place: where in the check it is written.
        what: what the target is for, in the words of the check, such as ``model.target``.

    Raises:
        ConfigError: where the file, the package, the module or the name is not there, or the file is not valid Python.
    """
    head, colon, name = target.rpartition(":")
    if not colon or not head or not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(
            f"{what}: expected package.module:callable or path/to/file.py:callable, found {target!r}",
            place=place,
            hint=_form_hint(target),
        )
    if head.endswith(".py") or "/" in head or os.sep in head:
        file = resolve_path(head, folder, place, what=what)
        _check_name(file, name, place, what=what, shown=head)
        return f"{file}:{name}"
    module_file = _module_file(head, folder, place, what=what)
    if module_file is not None and module_file.suffix == ".py":
        _check_name(module_file, name, place, what=what, shown=head)
    return target


def resolve_path(text: str, folder: Path, place: Place | None, *, what: str) -> Path:
    """The absolute path of a file named in a check. Raises `ConfigError` where no such file is."""
    path = Path(os.path.abspath(os.path.join(folder, text)))  # noqa: PTH100, PTH118 (a link's own folder counts)
    try:
        if "\0" not in text and path.is_file():
            return path
        near = _neighbours(path)
        kind = _not_a_file(path) if "\0" not in text else "does not exist"
    except (OSError, ValueError):
        near, kind = (), "does not exist"
    raise ConfigError(
        f"{what}: the file {text!r} {kind}",
        place=place,
        hint=suggest(path.name, near) or f"paths are relative to {folder}",
    )


def _not_a_file(path: Path) -> str:
    if path.is_dir():
        return "is a folder, expected a file"
    return "is a pipe or a device, expected a file" if path.exists() else "does not exist"


def _neighbours(path: Path) -> tuple[str, ...]:
    return tuple(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else ()


def suggest(name: str, known: Iterable[str]) -> str | None:
    """``did you mean 'forward'?``, or None where nothing is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else None


def _form_hint(target: str) -> str | None:
    if target.endswith(".py"):
        return f"name the function too, as in {target}:make_model"
    package, dot, name = target.rpartition(".")
    if dot and ":" not in target and all(part.isidentifier() for part in target.split(".")):
        return f"did you mean '{package}:{name}'?"
    return None


# Files


def _check_name(file: Path, name: str, place: Place | None, *, what: str, shown: str) -> None:
    first = name.partition(".")[0]
    names = names_in_file(file)
    if names is not None and first not in names:
        raise ConfigError(
            f"{what}: {shown} defines no {first!r} at its top level",
            place=place,
            hint=suggest(first, names) or _list_hint(names),
        )


def _list_hint(names: Iterable[str]) -> str | None:
    public = sorted(name for name in names if not name.startswith("_"))
    return (
        f"it defines {', '.join(public[:12])}{' and more' if len(public) > 12 else ''}"
        if public
        else "it defines nothing"
    )


def names_in_file(file: Path) -> frozenset[str] | None:
    """Names defined at the top level of a Python file; None where only running it would tell.

    Raises:
        ConfigError: where it cannot be read or is not valid Python.
    """
    tree = _parse(file)
    if tree is None:
        return None
    found: set[str] = set()
    for node in _top_level(tree.body):
        names = _defined(node)
        if "*" in names:
            return None
        found |= names
    found |= {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    return None if "__getattr__" in found else frozenset(found)


def uncalled_functions(file: Path) -> dict[str, int]:
    """Functions defined at the top level of a Python file that it never mentions again, and their lines.

    Those with a leading underscore are helpers of other files, and left out. Raises as `names_in_file`.
    """
    tree = _parse(file)
    if tree is None:
        return {}
    nodes = list(ast.walk(tree))
    mentioned = {node.id for node in nodes if isinstance(node, ast.Name)}
    mentioned |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return {
        node.name: node.lineno
        for node in _top_level(tree.body)
        if isinstance(node, ast.FunctionDef) and node.name not in mentioned and not node.name.startswith("_")
    }


def _parse(file: Path) -> ast.Module | None:
    """The syntax tree of a file; None for one too large, or that makes its names at run time."""
    try:
        if file.stat().st_size > MAX_SOURCE:
            return None
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", place=Place(str(file))) from None
    if any(mark.encode() in data for mark in _DYNAMIC):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about their escapes, which are not what is asked
            return ast.parse(data, filename=str(file))
    except SyntaxError as error:
        raise ConfigError(
            f"not valid Python: {error.msg}", place=Place(str(file), error.lineno, error.offset)
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"not valid Python: {error}", place=Place(str(file))) from None


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at import, those inside ``if``, ``try``, ``with`` and loops too."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for attribute in ("body", "orelse", "finalbody"):
            yield from _top_level(getattr(node, attribute, ()))
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _top_level(part.body)


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    own = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
    stored = {
        name.id
        for child in own
        for name in ast.walk(child)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    type_alias = getattr(node, "name", None)  # `type X = ...` of Python 3.12
    return stored | {type_alias.id} if isinstance(type_alias, ast.Name) else stored


# Packages


def _module_file(module: str, folder: Path, place: Place | None, *, what: str) -> Path | None:
    """The file of a module; None where there is one that is not a plain file (built in, compiled, zipped)."""
    top, *rest = module.split(".")
    if not all(part.isidentifier() for part in (top, *rest)):
        raise ConfigError(f"{what}: {module!r} is not the name of a module", place=place, hint=_module_hint(module))
    origin, locations = _find_top(top)
    if origin is None and not locations:
        raise ConfigError(f"{what}: the package {top!r} is not installed", place=place, hint=_install_hint(top, folder))
    for index, part in enumerate(rest):
        found = _find_in(locations, part)
        if found is None:
            if _makes_modules_itself(origin):
                return None
            parent = ".".join((top, *rest[:index]))
            raise ConfigError(
                f"{what}: {parent} has no module {part!r}", place=place, hint=suggest(part, _modules_in(locations))
            )
        origin, locations = found
    return Path(origin) if origin and origin.endswith(".py") else None


def _module_hint(module: str) -> str | None:
    return f"a file is named with its ending: {module}.py" if re.fullmatch(r"[\w\-]+", module) else None


def _install_hint(top: str, folder: Path) -> str:
    if (folder / f"{top}.py").is_file():
        return f"to use the file beside the check, write {top}.py instead of {top}"
    if top == "torch_neuronx":
        return f"{NEURONX} from {NEURONX_INDEX}"
    if top in _EXTRAS:
        return install(_EXTRAS[top])
    return f"pip install the package that provides {top}, or run from the folder it is in"


def _find_top(top: str) -> tuple[str | None, list[str]]:
    """File and folders of a top-level module. Finding one runs no code; the current folder counts, as in the worker."""
    try:
        spec = PathFinder.find_spec(top, [str(Path.cwd())]) or importlib.util.find_spec(top)
    except (ImportError, ValueError, OSError):
        return None, []
    if spec is None:
        return None, []
    locations = [str(entry) for entry in spec.submodule_search_locations or ()]
    return spec.origin or (None if locations else "built-in"), locations


def _find_in(locations: Iterable[str], part: str) -> tuple[str | None, list[str]] | None:
    for location in locations:
        base = Path(location) / part
        if (base / "__init__.py").is_file():
            return str(base / "__init__.py"), [str(base)]
        for ending in (".py", *EXTENSION_SUFFIXES, ".pyc"):
            if (file := base.with_name(part + ending)).is_file():
                return str(file), []
        if base.is_dir():
            return None, [str(base)]
    return None


def _modules_in(locations: Iterable[str]) -> set[str]:
    names = {entry.name for location in locations if Path(location).is_dir() for entry in Path(location).iterdir()}
    return {name.partition(".")[0] for name in names if not name.startswith(("_", "."))}


def _makes_modules_itself(origin: str | None) -> bool:
    if origin is None or not origin.endswith(".py"):
        return True
    text = Path(origin).read_text(encoding="utf-8", errors="replace")
    return "sys.modules" in text or "__path__" in text
