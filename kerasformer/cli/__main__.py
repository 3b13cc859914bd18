"""Entry point of `python -m kerasformer.cli`."""

from kerasformer.cli.app import main

main()
