"""``smoketest init``, the worker's side: what a target is built with and called with, found by trying on plain CPU."""
