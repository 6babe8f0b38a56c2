"""Scripts run in the interpreter that is examined, one process each. They use the standard library only.

They are started with ``-c``, so that they see the same path as ``python -m`` does, and write what they learn as JSON
Lines to the file named by their first argument; the second one is JSON too.
"""
