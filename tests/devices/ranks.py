"""Runs a program in several processes, as PyTorch's launcher does, and gives what each rank had to say.

A program is a file beside this one; it ends with `answer`, whose JSON is the rank's result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

HERE = Path(__file__).parent
SECONDS = 120
_ANSWERS = "RANKS_ANSWERS"


def run(program: str, ranks: int, folder: Path, *args: str) -> list[dict[str, Any]]:
    """The answers of all ranks, in their order; a rank that fails fails the test with what it printed."""
    # As under torchrun: the launcher keeps the store, so that nobody takes the port before rank 0 would.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": str(ranks), _ANSWERS: str(folder),
    }  # fmt: skip
    processes = []
    command = [sys.executable, "-W", "ignore", str(HERE / program), *args]
    try:
        for rank in range(ranks):
            here = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
            with (folder / f"{rank}.log").open("w") as log:
                processes.append(subprocess.Popen(command, env=os.environ | shared | here, stdout=log, stderr=log))
        ends = time.monotonic() + SECONDS
        while any(process.poll() is None for process in processes) and time.monotonic() < ends:
            if any(process.poll() for process in processes):  # the others would wait for it
                break
            time.sleep(0.05)
        for process in processes:
            if time.monotonic() >= ends:
                process.send_signal(signal.SIGABRT)  # it then says where it hangs
                process.wait(10)
    finally:
        for process in processes:
            process.kill()
    codes = [process.wait() for process in processes]
    said = "\n".join((folder / f"{rank}.log").read_text() for rank in range(ranks))
    assert codes == [0] * ranks, said
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def answer(result: dict[str, Any]) -> None:
    """Leave this rank's result for `run`."""
    (Path(os.environ[_ANSWERS]) / f"{os.environ['RANK']}.json").write_text(json.dumps(result))
