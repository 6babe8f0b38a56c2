"""``python -m smoketest``: the same as the command ``smoketest``."""

from smoketest.cli import main

if __name__ == "__main__":
    main()
