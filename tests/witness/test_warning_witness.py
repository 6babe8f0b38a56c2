"""The device's warnings are recorded whatever the filters say, and nobody else's are touched."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest

from smoketest.findings.wordings import op_named_as_fallback
from smoketest.witness.context import Context
from smoketest.witness.warnings import FallbackWarnings, SeenWarning

DEVICE = "Operator ' aten::atan2.out ' fell back to CPU"


@pytest.fixture
def watch() -> Iterator[FallbackWarnings]:
    with FallbackWarnings(Context("forward")) as watching:
        yield watching


@pytest.mark.parametrize(
    ("text", "op"),
    [
        (DEVICE, "aten::atan2.out"),
        ("Operator 'aten::add.Tensor' fell back to CPU", "aten::add.Tensor"),
        ("Operator 'mul' executed via CPU fallback", "mul"),
        ("No implementation could handle operation aten::topk. Falling back on CPU", "aten::topk"),
        ("[Neuron] [WARNING] [x.cpp:3] OPERATOR 'aten::SORT' FELL BACK TO CPU", "aten::SORT"),
        ("the op aten::erfinv.out is falling back to the CPU", "aten::erfinv.out"),
        ("flash-attn is not installed, falling back to CPU", None),
        ("aten::add is deprecated", None),
        ("", None),
    ],
)
def test_wordings_are_matched_loosely_but_an_op_must_be_named(text: str, op: str | None) -> None:
    assert op_named_as_fallback(text) == op


@pytest.mark.parametrize("action", ["ignore", "error", "once", "default", "always", "module"])
def test_any_filter_lets_the_witness_see(watch: FallbackWarnings, action: str) -> None:
    warnings.simplefilter(action)  # type: ignore[arg-type]
    for _ in range(3):
        warnings.warn(DEVICE, UserWarning, stacklevel=1)
    assert watch.seen == {SeenWarning("aten::atan2.out", "forward"): 3}


def test_a_filter_of_error_does_not_make_the_devices_warning_an_exception_but_does_so_for_others(
    watch: FallbackWarnings,
) -> None:
    warnings.filterwarnings("error", message=".*")
    warnings.warn(DEVICE, UserWarning, stacklevel=1)
    with pytest.raises(UserWarning, match="mine"):
        warnings.warn("mine", UserWarning, stacklevel=1)


def test_it_sees_through_catch_warnings_in_the_users_code(watch: FallbackWarnings) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(DEVICE, UserWarning, stacklevel=1)
        warnings.warn("mine", UserWarning, stacklevel=1)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        warnings.warn(DEVICE, UserWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == ["mine"]
    assert watch.seen == {SeenWarning("aten::atan2.out", "forward"): 2}


def test_a_users_showwarning_gets_the_users_warnings_only(
    watch: FallbackWarnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest, **more: shown.append(str(message)))
    warnings.simplefilter("always")
    warnings.warn(DEVICE, UserWarning, stacklevel=1)
    warnings.warn("mine", UserWarning, stacklevel=1)
    assert shown == ["mine"]


def test_every_way_to_change_the_list_keeps_the_entry_in_front(watch: FallbackWarnings) -> None:
    filters = warnings.filters
    entry = ("error", None, UserWarning, None, 0)
    filters.insert(0, entry)  # type: ignore[attr-defined]
    filters[0] = entry  # type: ignore[index]
    filters[:] = [entry]  # type: ignore[index]
    filters.append(entry)  # type: ignore[attr-defined]
    filters.extend([entry])  # type: ignore[attr-defined]
    filters += [entry]  # type: ignore[operator]
    filters.reverse()  # type: ignore[attr-defined]
    filters.sort(key=str)  # type: ignore[attr-defined]
    filters.remove(entry)  # type: ignore[attr-defined]
    filters.pop(0)  # type: ignore[attr-defined]
    del filters[0]  # type: ignore[attr-defined]
    warnings.warn(DEVICE, UserWarning, stacklevel=1)
    filters.clear()  # type: ignore[attr-defined]
    warnings.filters = filters.copy()  # type: ignore[attr-defined]
    warnings.filters.insert(0, entry)  # type: ignore[attr-defined]
    warnings.warn(DEVICE, UserWarning, stacklevel=1)
    assert watch.seen.total() == 2


def test_ensure_comes_back_after_somebody_replaced_the_list(watch: FallbackWarnings) -> None:
    warnings.filters = [("ignore", None, Warning, None, 0)]  # type: ignore[assignment]
    warnings.warn(DEVICE, UserWarning, stacklevel=1)
    assert not watch.seen
    watch.ensure()
    warnings.warn(DEVICE, UserWarning, stacklevel=1)
    assert watch.seen.total() == 1


def test_a_text_shown_before_entering_is_seen_again_inside() -> None:
    def warn() -> None:
        warnings.warn(DEVICE, UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True):
        warnings.simplefilter("once")
        warn()
        with FallbackWarnings(Context()) as watching:
            warn()
        assert len(watching.seen) == 1


def test_leaving_puts_the_users_list_back_with_what_they_changed_inside() -> None:
    with warnings.catch_warnings():
        before = warnings.filters
        with FallbackWarnings(Context()) as watching:
            warnings.simplefilter("ignore", BytesWarning)
        assert warnings.filters is before
        assert type(before) is list
        assert before[0] == ("ignore", None, BytesWarning, None, 0)
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="fell back"):
            warnings.warn(DEVICE, UserWarning, stacklevel=1)
        assert not watching.seen


def test_the_phase_is_that_of_the_moment() -> None:
    context = Context("forward")
    with FallbackWarnings(context) as watching:
        warnings.warn(DEVICE, UserWarning, stacklevel=1)
        context.phase = "backward"
        warnings.warn(DEVICE, UserWarning, stacklevel=1)
    assert [one.phase for one in watching.seen] == ["forward", "backward"]


def test_warnings_from_c_are_seen_with_python_started_with_errors_on_warnings() -> None:
    script = (
        "import ctypes\n"
        "from smoketest.witness.context import Context\n"
        "from smoketest.witness.warnings import FallbackWarnings\n"
        "warn = ctypes.pythonapi.PyErr_WarnEx\n"
        "warn.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t]\n"
        "with FallbackWarnings(Context('forward')) as watching:\n"
        f"    assert warn(UserWarning, {DEVICE!r}.encode(), 1) == 0\n"
        "    try:\n"
        "        warn(UserWarning, b'mine', 1)\n"
        "    except UserWarning:\n"
        "        print([one.op for one in watching.seen])\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['aten::atan2.out']\n"
