"""The command line `regard`."""

from regard.cli.main import main

__all__ = ["main"]
