"""The parent process: starts workers, streams their events, survives their death."""
