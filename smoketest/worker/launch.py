# mypy: allow-untyped-calls
"""``python -m smoketest.worker.launch LAUNCH.json``: PyTorch's own launcher, which starts a worker for each rank.

It is torchrun (`torch.distributed.run`) and nothing beside it: a rank that dies ends the others. What torchrun knows of
deaths, exit codes and signals, goes to the supervisor as data.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from smoketest.process import end_with_parent
from smoketest.supervise.protocol import Deaths, Launch

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the ranks to their ends; 1 where one of them died."""
    end_with_parent()
    launch = Launch.model_validate_json(Path(arguments[0]).read_bytes())
    os.set_inheritable(launch.deaths, False)
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    # The rendezvous of --standalone, on this machine's own address whatever its name resolves to.
    here = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--local-addr", "127.0.0.1"]
    here += ["--log-dir", str(launch.folder / "launcher")]  # it would make one that nobody takes away
    try:
        run.main([*here, "--nproc-per-node", str(launch.ranks), "-m", launch.module, str(launch.folder)])
    except ChildFailedError as error:
        codes = {failure.local_rank: failure.exitcode for failure in error.failures.values()}
        os.write(launch.deaths, Deaths(codes=codes).model_dump_json().encode() + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
