"""The command line: `kerasformer models | info | export | run | verify | bench | web | serve | cache | demo`."""

from kerasformer.cli.app import app, main

__all__ = ["app", "main"]
