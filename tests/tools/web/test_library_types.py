"""TypeScript checks the types in the comments of the page's library, without compiling anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import kerasformer.tools.web
from tests.foreign.environments import need

LIBRARY = Path(kerasformer.tools.web.__file__).parent / "page" / "library"
SETTINGS = "--noEmit --allowJs --checkJs --strict --target es2024 --module esnext --moduleResolution bundler"


@pytest.mark.foreign("web")
def test_types() -> None:
    compiler = need("node") / "typescript" / "bin" / "tsc"
    files = [str(path) for path in sorted(LIBRARY.rglob("*.js"))]
    command = ["node", str(compiler), *SETTINGS.split(), "--lib", "es2024,dom,dom.iterable", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
