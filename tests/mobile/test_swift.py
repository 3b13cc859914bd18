"""The Swift package: its own tests where a toolchain is found, and a parser elsewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.extras import need
from tests.mobile.cards import CASES, codes

PACKAGE = Path(__file__).parents[2] / "mobile" / "swift"
VECTORS = PACKAGE.parent / "vectors"
FILES = sorted(path for path in PACKAGE.rglob("*.swift") if ".build" not in path.parts)
COMMAND = "KERASFORMER_SWIFT"
"""Name of the variable with the command that runs `swift`, such as one in a root directory of another system."""


def toolchain() -> list[str]:
    """Returns the command that runs `swift`; skips the test if there is none."""
    command = shlex.split(os.environ.get(COMMAND, "")) or [shutil.which("swift") or ""]
    if not command[0]:
        pytest.skip(f"needs a Swift toolchain; mobile/swift/README.md names one, and {COMMAND} its command")
    return command


def errors(source: bytes) -> list[str]:
    """Returns what the parser of another project does not accept. It knows the grammar, but neither names nor types."""
    tree_sitter, grammar = need("tree_sitter"), need("tree_sitter_swift")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    found, stack = [], [parser.parse(source).root_node]
    while stack:
        node = stack.pop()
        if node.type == "ERROR" or node.is_missing:
            found.append(f"line {node.start_point[0] + 1}: {node.text[:80]!r}")
        elif node.has_error:
            stack += node.children
    return found


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(PACKAGE)) for path in FILES])
def test_sources_parse(path: Path) -> None:
    found = errors(path.read_bytes())
    assert not found, "\n".join(found)


def test_code_of_cards() -> None:
    """That of every task parses, and calls methods of the library with its labels."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in FILES if "Sources" in path.parts)
    found = codes("swift")
    assert found.keys() == CASES.keys()
    for case, code in found.items():
        assert not errors(code.encode()), case
        literals = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', code)
        for method, arguments in re.findall(r"\bmodel\.(\w+)\(((?:[^()]|\([^()]*\))*)\)", literals):
            declared = re.findall(rf"public func {method}\(\s*(.*?)\n?\s*\)(?: async|\s*->)", sources, re.DOTALL)
            labels = set(re.findall(r"\b(\w+): ", re.sub(r"Message\(.*?\)", "", arguments)))
            assert any(labels <= set(re.findall(r"(\w+)(?: \w+)?: ", each)) for each in declared), (
                case,
                method,
                labels,
            )


def test_sources_import_foundation_alone() -> None:
    """Only the engines import something else, and only where it exists."""
    for path in FILES:
        if "Sources" in path.parts:
            imports = set(re.findall(r"^import (\w+)", path.read_text(), re.MULTILINE))
            engine = {"OnnxRuntimeEngine": "OnnxRuntimeBindings", "LiteRTEngine": "TensorFlowLite"}.get(path.stem)
            assert imports <= {"Foundation", engine}, path.name
            assert engine is None or path.read_text().startswith(f"#if canImport({engine})")


def test_package() -> None:
    """`swift test` compiles the package and runs the vectors."""
    if not VECTORS.exists():
        pytest.skip("needs mobile/vectors")
    command = [*toolchain(), "test", "--package-path", str(PACKAGE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert re.search(r"Executed \d+ tests", done.stdout + done.stderr), "no test was executed"
