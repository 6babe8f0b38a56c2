"""A check: frozen models (`models`), and their reading from YAML (`load`)."""

from smoketest.config.models import Check

__all__ = ["Check"]
