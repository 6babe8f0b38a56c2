"""The child process: runs one part of a check and tells the supervisor what happens."""
