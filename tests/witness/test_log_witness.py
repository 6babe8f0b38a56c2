"""What the backend logs about a fallback is heard at any level, and nothing of the user's logging changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from smoketest.findings.wordings import op_named_as_fallback
from smoketest.witness.context import Context
from smoketest.witness.warnings import FallbackWarnings, SeenWarning

LINE = (
    "No implementation could handle operation topk. Falling back on CPU. Args: [arg0: Tensor(dtype=torch.int64,"
    " dispatch keys: c10::PrivateUse1)]. Kwargs: [{}]. Details: ImplementationWrapper: aten::topk failed"
)


@pytest.fixture
def watch() -> Iterator[FallbackWarnings]:
    with FallbackWarnings(Context("backward")) as watching:
        yield watching


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler = Kept()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("name", [None, "torch_neuronx.python_ops.torch_mlir.op_impl", "torch_neuronx.new"])
def test_the_backends_line_is_heard_though_no_level_lets_it_through(watch: FallbackWarnings, name: Any) -> None:
    logger = logging.getLogger(name)
    watch.ensure()
    logging.disable(logging.CRITICAL)
    try:
        logger.debug(LINE)
    finally:
        logging.disable(logging.NOTSET)
    assert watch.seen == {SeenWarning("topk", "backward"): 1}


def test_what_the_users_settings_hold_back_stays_held_back_and_the_rest_goes_on(
    watch: FallbackWarnings, kept: Kept
) -> None:
    root = logging.getLogger()
    root.debug(LINE)
    root.debug("mine, quietly")
    root.warning("mine, %s", "aloud")
    logging.getLogger("mine").warning("of my logger")
    logging.getLogger("torch_neuronx.new").debug("theirs, quietly")
    assert kept.texts == ["mine, aloud", "of my logger"]


def test_a_level_that_lets_the_line_through_shows_it_to_the_user_once(watch: FallbackWarnings, kept: Kept) -> None:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.DEBUG)
    try:
        root.debug(LINE)
    finally:
        root.setLevel(before)
    assert kept.texts == [LINE]
    assert watch.seen == {SeenWarning("topk", "backward"): 1}


def test_arguments_of_records_that_nobody_shows_are_left_alone(watch: FallbackWarnings) -> None:
    class Costly:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    logging.getLogger().debug("value %s", Costly())


def test_the_same_text_as_an_error_is_a_refusal_and_no_fallback(watch: FallbackWarnings, kept: Kept) -> None:
    logging.getLogger().error(LINE)
    assert watch.seen == {}
    assert kept.texts == [LINE]


def test_loggers_are_as_they_were_afterwards() -> None:
    root = logging.getLogger()
    with FallbackWarnings(Context()):
        assert "handle" in vars(root)
    assert not {"handle", "isEnabledFor"} & set(vars(root))
    assert not root.isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (LINE, "topk"),
        ("Starting CPU fallback operation= aten::mul.Tensor", "aten::mul.Tensor"),
        ("CPU fallback completed operation= aten::mul.Tensor time_us= 7", "aten::mul.Tensor"),
        ("Execution failed: cannot lower", None),
    ],
)
def test_the_formats_of_the_log_are_read(text: str, op: str | None) -> None:
    assert op_named_as_fallback(text) == op
