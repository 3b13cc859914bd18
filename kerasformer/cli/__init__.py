"""The command line: the program `kerasformer`."""

from kerasformer.cli.app import app, main

__all__ = ["app", "main"]
