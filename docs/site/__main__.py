"""Builds the documentation site: python -m docs.site [FOLDER], by default build/site.

It needs the extras `docs` and `export`. A warning of Sphinx, a broken link or anything that a page would fetch from
another place is an error, and an earlier site then stays as it was.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from docs.site import accessibility, links, live, navigation, staging
from docs.site.staging import ROOT

HERE = Path(__file__).parent


def check_installation() -> None:
    """Checks that the package whose code the reference documents is the one beside these pages.

    Raises:
        SystemExit: Another one is installed, such as that of an earlier clone.
    """
    for name in ("kerasformer", "kerasformer.export", "kerasformer.zoo"):
        spec = importlib.util.find_spec(name)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        if origin is None or not origin.is_relative_to(ROOT):
            raise SystemExit(
                f"The site documents the code beside its pages, so {name} must be that of {ROOT}. Received: "
                f'{origin or "none"}. Install this clone with: pip install -e ".[docs]"'
            )


def build(folder: Path, runs: bool = False, runtime_files: Path | None = None) -> list[str]:
    """Builds the site and returns its problems, without which it replaces what was in the folder.

    Args:
        folder: Destination; an existing one must be a site that this command has written.
        runs: Whether code of the playground runs in the page, where the site is served.
        runtime_files: See `live.write`.

    Raises:
        SystemExit: The folder contains something else.
    """
    from sphinx.cmd.build import build_main

    if folder.exists() and any(folder.iterdir()) and not (folder / "searchindex.js").is_file():
        raise SystemExit(f"The folder must be new, empty or an earlier site. Received: {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        source, output = Path(work) / "source", Path(beside) / "site"
        pages = staging.stage(source)
        navigation.write(source, pages)
        doctrees = ["-d", str(Path(work) / "doctrees")]
        status = build_main(["-q", "-W", "--keep-going", "-c", str(HERE), *doctrees, str(source), str(output)])
        accessibility.mend(output)
        problems = ["Sphinx has warned, see above"] if status else links.problems(output)
        if not problems:
            if runs:
                live.write(output, runtime_files=runtime_files)
            shutil.rmtree(output / "_sources", ignore_errors=True)
            if folder.exists():
                os.replace(folder, Path(beside) / "earlier")
            os.replace(output, folder)
    return problems


def main() -> int:
    """Builds the site; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description="Builds the documentation site.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "site", help="where it is written")
    parser.add_argument("--live", action="store_true", help="with presets that run in the page, where it is served")
    parser.add_argument("--runtime-files", type=Path, help="packages of npm for --live, as for kerasformer web")
    arguments = parser.parse_args()
    check_installation()
    folder = arguments.folder
    problems = build(folder.resolve(), arguments.live, arguments.runtime_files)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{folder}/index.html: {len(list(folder.rglob('*.html')))} pages")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
