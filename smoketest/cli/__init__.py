"""What a person types: one module per command. Importing this package imports next to nothing."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``smoketest`` command."""
    from smoketest.cli.signals import end_quietly

    end_quietly()
    try:
        from smoketest.cli.app import run_app
    except MemoryError:
        raise SystemExit(_no_memory()) from None
    run_app()


def _no_memory() -> int:
    import os

    os.write(2, b"error: there is not enough memory to start\n")
    return 5
