"""A model that misbehaves: ``kwargs: {act: WHAT, at: WHERE}`` of its check. Copied beside the check as net.py.

It runs in workers only, and reads from their request which part of the check they are.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

REQUEST = json.loads(Path(sys.argv[1]).read_bytes())
PART = REQUEST["part"]
ASKED = REQUEST["check"]["model"]["kwargs"]
CALLS = itertools.count(1)  # no attribute of the model, whose state is put back
OUTPUT = Path(REQUEST["output"] or ".")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def segv() -> None:
    ctypes.string_at(0)


def run_out_of_memory() -> None:
    raise MemoryError


def take_all_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    torch.empty(2**33).fill_(1)


def system_exit() -> NoReturn:
    sys.exit("no more")


def exit_at_once() -> NoReturn:
    os._exit(0)


def never_return() -> None:
    while True:
        time.sleep(1)


def never_return_and_refuse_to_end() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: print("not yet"))
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    print("asleep", flush=True)
    never_return()


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fork_and_go_on_in_both() -> None:
    os.fork()


def fork_and_leave_children() -> None:
    for session in (False, True):
        subprocess.Popen(["sleep", "600"], start_new_session=session)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)


def fork_many() -> None:
    for _ in range(50):
        if os.fork() == 0:
            time.sleep(600)


def print_much() -> None:
    line = b"x" * 1023 + b"\n"
    for _ in range(64):
        os.write(1, line * 256)


def print_a_gigabyte() -> None:
    line = b"x" * 1023 + b"\n"
    for _ in range(4096):
        os.write(1, line * 256)


def print_without_a_line_end() -> None:
    sys.stdout.write("\x1b[2J\0\u202e" + "é" * 2**20)


def replace_streams() -> None:
    class Broken:
        encoding = None

        def __getattr__(self, name: str) -> Any:
            raise ValueError(f"no {name}")

    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Broken()  # type: ignore[assignment, misc]


def close_streams() -> None:
    os.close(1)
    os.close(2)
    sys.stdout.close()


def lose_streams() -> None:
    sys.stdout = sys.stderr = sys.stdin = None  # type: ignore[assignment]


def close_all_files() -> None:
    os.closerange(0, 1024)


def install_hooks() -> None:
    def die(*_: Any) -> NoReturn:
        os._exit(77)

    sys.excepthook = threading.excepthook = sys.unraisablehook = die
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, die)
    raise ValueError("of the user's own")


def change_the_clock() -> None:
    moments = iter(range(0, -(10**12), -(10**9)))
    for name in ("time", "monotonic", "perf_counter", "process_time"):
        setattr(time, name, lambda: float(next(moments)))


def stop_the_clock() -> None:
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, lambda: float("nan"))


def raise_a_wild_text() -> None:
    raise ValueError("\ud800\0\x1b[31m\u202e<script>&\n::error::" + "x" * 10_000)


def leave_a_thread() -> None:
    threading.Thread(target=never_return).start()


def recurse() -> None:
    recurse()


def delete_the_output() -> None:
    subprocess.run(["rm", "-rf", str(OUTPUT)], check=True)


def put_a_file_in_the_output() -> None:
    delete_the_output()
    OUTPUT.write_text("mine")


def stand_nowhere() -> None:
    folder = Path("gone")
    folder.mkdir()
    os.chdir(folder)
    Path("../gone").rmdir()


def stand_nowhere_and_raise() -> None:
    stand_nowhere()
    raise ValueError("lost")


def fill_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def end_the_command() -> None:
    os.kill(os.getppid(), signal.SIGTERM)
    never_return()


def write_into_the_pipe() -> None:
    os.write(REQUEST["events"], b'{"event": "result"\n\xff\0\n')


def nothing() -> None:
    pass


ACTS: dict[str, Callable[[], None]] = {
    name: thing for name, thing in list(globals().items()) if callable(thing) and not name.startswith("_")
}


def perhaps(place: str) -> None:
    """Misbehave, if this is the place to."""
    part, _, where = ASKED["at"].rpartition("/")
    if where == place and part in ("", PART):
        print("misbehaving:", ASKED["act"], flush=True)
        ACTS[ASKED["act"]]()


perhaps("import")


class Net(torch.nn.Linear):
    def __init__(self, act: str, at: str) -> None:
        perhaps("build")
        super().__init__(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        perhaps(f"call {next(CALLS)}")
        return super().forward(x)
