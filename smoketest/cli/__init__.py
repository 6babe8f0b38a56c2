"""What a person types: one module per command. Importing this package imports next to nothing."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``smoketest`` command."""
    from smoketest.cli.app import run_app

    run_app()
