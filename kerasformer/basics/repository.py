"""Where the repository of this package is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, metadata


def address() -> str | None:
    """Returns the address that `project.urls` of pyproject.toml has as `Repository`; None while there is none."""
    try:
        urls = metadata("kerasformer").get_all("Project-URL", [])
    except PackageNotFoundError:  # sources that are not installed
        return None
    return next((url for name, _, url in (each.partition(", ") for each in urls) if name == "Repository"), None)


def where(path: str) -> str:
    """Returns a sentence about the path that stands for a copy of the repository in code."""
    if url := address():
        return f"`{path}` stands for a copy of it: `git clone {url}`."
    return f"`{path}` stands for a copy of it, which has no public address yet."
