"""What torch-mlir said of a graph, kept on disk: lowering the same op again takes no process and no time.

The folder is ``$SMOKETEST_CACHE_DIR``, else ``smoketest`` in the user's cache folder; an empty ``SMOKETEST_CACHE_DIR``
keeps nothing. There is one file per engine (torch, torch-mlir, this package's own pipelines and limits), to which lines
are added; what cannot be read in it is as if it were not there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from smoketest.probe import limits, lowering_worker
from smoketest.probe.graphs import GraphSpec, signature
from smoketest.probe.lower import Lowered, LoweringProcess
from smoketest.probe.lowering_worker import STAGES, Answer, Hello

__all__ = ["CachedLowering", "Lowers", "cache_file"]

_LARGEST = 64 * 2**20


class Lowers(Protocol):
    """Something that lowers graphs: a `LoweringProcess`, with or without a cache in front."""

    def start(self) -> None:
        """Begin to start it where it will be needed."""

    def hello(self) -> Hello:
        """What it says of itself."""

    def lower(self, graph: GraphSpec, timeout: float) -> Lowered:
        """How far `graph` gets within `timeout` seconds."""


def cache_file() -> Path | None:
    """Where answers of the installed engine are kept; None where nothing is, or where the engine has no version."""
    folder = _folder()
    try:
        versions = [importlib.metadata.version(name) for name in ("torch", "torch-mlir")]
    except importlib.metadata.PackageNotFoundError:  # the torch-mlir that torch-neuronx brings is no distribution
        return None
    ours = b"".join(Path(file).read_bytes() for file in (lowering_worker.__file__, limits.__file__, limits.DATA))
    engine = hashlib.sha256("\0".join(versions).encode() + ours).hexdigest()[:16]
    return None if folder is None else folder / f"lowering-{engine}.jsonl"


def _folder() -> Path | None:
    own = os.environ.get("SMOKETEST_CACHE_DIR")
    if own is not None:
        return Path(own) if own else None
    users = os.environ.get("XDG_CACHE_HOME")
    if users and Path(users).is_absolute():
        return Path(users) / "smoketest"
    try:
        return Path.home() / ".cache" / "smoketest"
    except RuntimeError:  # there is none
        return None


class CachedLowering:
    """A lowering process behind a cache; it is started with the first graph the cache does not know.

    Only answers are kept: a crash or a time-out may not happen again. Use as a context manager.

    Args:
        file: the cache; nothing is kept if None.
        process: what lowers; one of its own by default.
    """

    def __init__(self, file: Path | None, process: LoweringProcess | None = None) -> None:
        self.process = process or LoweringProcess()
        self._file = file
        self._hello, self._answers = _read(file)

    def __enter__(self) -> CachedLowering:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)

    def start(self) -> None:
        """Begin to start the process where the cache is empty; else it may not be needed at all."""
        if self._hello is None:
            self.process.start()

    def hello(self) -> Hello:
        """What the process says of itself, or said when it was last started."""
        if self._hello is None:
            self._hello = self.process.hello()
            higher_order = sorted(self._hello.higher_order)
            self._add({"hello": {"torch_mlir": self._hello.torch_mlir, "higher_order": higher_order}})
        return self._hello

    def lower(self, graph: GraphSpec, timeout: float) -> Lowered:
        """See `LoweringProcess.lower`."""
        key = hashlib.sha256(repr(signature(graph)).encode()).hexdigest()
        known = self._answers.get(key)
        if known is not None:
            return known
        seen = self.process.lower(graph, timeout)
        if isinstance(seen, Answer):
            self._answers[key] = seen
            found = [(hit.code, hit.op, hit.node) for hit in seen.limits]
            self._add({"graph": key, "answer": [seen.stage, seen.sentence, seen.node, seen.unknown, found]})
        return seen

    def _add(self, entry: dict[str, Any]) -> None:
        """One line in one write, so that several processes may add to the file at once."""
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("ab", buffering=0) as file:
                file.write(json.dumps(entry).encode() + b"\n")
        except OSError:  # a full or read-only disk: the probe is as good without
            self._file = None


def _read(file: Path | None) -> tuple[Hello | None, dict[str, Answer]]:
    hello: Hello | None = None
    answers: dict[str, Answer] = {}
    for line in _lines(file):
        try:
            entry = json.loads(line)
            if "hello" in entry:
                hello = Hello(str(entry["hello"]["torch_mlir"]), frozenset(map(str, entry["hello"]["higher_order"])))
            else:
                answers[str(entry["graph"])] = _answer(*entry["answer"])
        except (ValueError, TypeError, KeyError):
            continue
    return hello, answers


def _answer(stage: Any, sentence: Any, node: Any, unknown: Any, found: Any) -> Answer:
    if stage not in STAGES:
        raise ValueError(stage)
    known = tuple(limits.Hit(str(code), str(op), _text(at)) for code, op, at in found)
    return Answer(stage, str(sentence), _text(node), tuple(map(str, unknown)), known)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _lines(file: Path | None) -> list[bytes]:
    try:
        if file is None:
            return []
        if file.stat().st_size > _LARGEST:
            file.unlink()
            return []
        return file.read_bytes().splitlines()
    except OSError:
        return []
