"""Prints the requirements of the extra test: `latest` without versions, `lowest` at their lower bounds, or `installed`.

`installed` prints the version that is installed of each beside what is required.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

_OWN = "kerasformer"


def requirements(extra: str, extras: dict[str, list[str]]) -> list[str]:
    """Returns the requirements of an extra, and of the extras of this package that it names."""
    flat = []
    for requirement in extras[extra]:
        own = re.fullmatch(rf"{_OWN}\[(.+)\]", requirement)
        nested = own[1].split(",") if own else []
        flat += [other for name in nested for other in requirements(name, extras)] if own else [requirement]
    return flat


def main(which: str) -> None:
    """Prints one requirement a line."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    everything = project["dependencies"] + requirements("test", project["optional-dependencies"])
    for requirement in sorted(set(everything)):
        name, operator, number = re.fullmatch(r"([\w.-]+)(>=|==)([\w.]+)", requirement).groups()
        if which == "latest":
            print(name)
        elif which == "installed":
            print(f"{requirement:40} {version(name)}")
        elif operator == ">=":
            print(f"{name}=={number}")


if __name__ == "__main__":
    main(sys.argv[1])
