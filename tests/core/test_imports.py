from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from kerasformer.bundle.architectures import architectures

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "zoo"

# Modules that an architecture may import in addition to those of the architectures that it is derived from.
FURTHER = {
    "marian": {"bart"},
    "encoder_decoder": {"bert"},
    "modernbert_decoder": {"modernbert"},
    "t5gemma": {"gemma2"},
    "t5gemma2": {"gemma2", "gemma3_text"},
}

SATELLITES = [ROOT / "kerasformer/cli", ROOT / "kerasformer/tools"]
"""Folders that the core does not import: the tools, and the command line above them."""

FACES = {
    path.parent.name: set(importlib.import_module(f"kerasformer.{path.parent.name}").__all__)
    for folder in ("kerasformer", ".")
    for path in (ROOT / folder).glob("*/__init__.py")
    if path.parent.name in "bundle engines export generation layers models pipelines tokenization zoo".split()
}
"""Public names of rooms; `basics` and `files` have none, and their modules are imported."""

BLOCKED = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"keras", "tensorflow", "torch", "jax", "transformers", "tf2onnx", "tensorflow_text"}:
            raise ImportError(f"{name} may not be imported here")

sys.meta_path.insert(0, Blocker())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""

MISSING = """
import importlib, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in sys.argv[2].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import kerasformer as kf
from kerasformer.errors import MissingExtraError
for use in (
    lambda: getattr(kf, sys.argv[1]),
    lambda: importlib.import_module(f"kerasformer.{sys.argv[1]}"),
    lambda: kf.pipeline("sentiment-bert", "text-classification"),
):
    try:
        use()
    except MissingExtraError as error:
        print(error)
"""

LAZY = """
import numpy, sys, time
before = set(sys.modules)
finders = [*sys.meta_path]
start = time.perf_counter()
import kerasformer
assert sys.meta_path == finders, "the package adds no import hook"
print(f"{(time.perf_counter() - start) * 1000:.1f}", *sorted(set(sys.modules) - before))
"""


def test_imports_without_keras_or_any_framework(tmp_path):
    rooms = "bundle cli engines errors files.publishing files.sources generation pipelines tokenization tools.bench"
    run(BLOCKED, "kerasformer", *(f"kerasformer.{room}" for room in rooms.split()), cwd=tmp_path)


def test_a_python_without_docstrings():
    """The help of options is read from docstrings."""
    subprocess.run([sys.executable, "-OO", "-c", "import kerasformer.cli, kerasformer.pipelines"], check=True)


@pytest.mark.parametrize(
    ("name", "extra", "missing"),
    [
        ("zoo", "tensorflow", "keras,tensorflow,jax,torch"),
        ("layers", "tensorflow", "tensorflow"),
        ("export", "export", "tensorflow"),
    ],
)
def test_without_keras_the_extra_is_named(name, extra, missing, tmp_path):
    """As with only `kerasformer[litert]` installed, and with Keras installed without a backend."""
    lines = run(MISSING, name, missing, cwd=tmp_path).splitlines()
    assert len(lines) == 3
    assert all(
        "is required here and is not installed. Install it " in line and "with: pip install " in line for line in lines
    )
    assert lines[0] == lines[1] and f"[{extra}]" in lines[0] and "[tensorflow]" in lines[2]


def test_importing_the_package_is_lazy(tmp_path):
    milliseconds, *modules = run(LAZY, cwd=tmp_path).split()
    assert [name for name in modules if name.startswith("kerasformer")] == ["kerasformer"]
    assert not {"keras", "tensorflow", "tokenizers", "rich"} & set(modules)
    assert float(milliseconds) < 50


def test_an_unknown_public_name_lists_the_known_ones():
    import kerasformer

    with pytest.raises(AttributeError, match="no attribute 'zoom'. Expected one of: .*zoo"):
        kerasformer.zoom  # noqa: B018
    assert set(kerasformer.__all__) == set(dir(kerasformer))


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "kerasformer/moved").glob("*.py")))
def test_a_module_that_has_moved_names_its_place(name):
    if name in ("testing", "training"):  # public names, which keep working
        now = importlib.import_module(f"kerasformer.tools.{name}")
        earlier = importlib.import_module(f"kerasformer.{name}")
        assert all(getattr(earlier, public) is getattr(now, public) for public in now.__all__)
    else:
        with pytest.raises(ImportError, match=rf"kerasformer\.{name} has moved. Expected: kerasformer\.") as raised:
            importlib.import_module(f"kerasformer.{name}.a_module")
        importlib.import_module(str(raised.value).split()[4])


def test_every_public_name_loads():
    import kerasformer

    for name in kerasformer.__all__:
        assert getattr(kerasformer, name) is not None


def test_the_stub_has_the_public_names():
    import kerasformer

    stub = ROOT / "kerasformer/__init__.pyi"
    modules = {f"{module}.{name}" for name, module in kerasformer._MODULES.items()}
    assert imports(stub) == {f"kerasformer.{name}" for name in (*kerasformer._ROOMS.values(), *modules)}
    listed = next(node.value for node in ast.parse(stub.read_text()).body if isinstance(node, ast.Assign))
    assert ast.literal_eval(listed) == kerasformer.__all__


@pytest.mark.parametrize("path", sorted(ZOO.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_model_files_import_only_what_they_are_derived_from(path):
    models = {other.stem for other in ZOO.glob("[a-z]*.py")} - {path.stem}
    parents = {name.replace("-", "_"): each.derived_from for name, each in architectures().items()}
    bases, name = set(FURTHER.get(path.stem, ())), path.stem
    while parent := parents[name]:
        bases.add(name := parent.replace("-", "_"))
    imported = {name.split(".")[2] for name in imports(path) if name.startswith("kerasformer.zoo.")}
    assert imported & models <= bases


@pytest.mark.parametrize("room", ["export", "kerasformer"])
def test_only_the_zoo_imports_architectures(room):
    models = {other.stem for other in ZOO.glob("[a-z]*.py")}
    for path in (ROOT / room).rglob("*.py"):
        imported = {name.split(".")[2] for name in imports(path) if name.startswith("kerasformer.zoo.")}
        assert not imported & models, path


def test_the_zoo_contains_only_architectures():
    files = [path for path in ZOO.iterdir() if path.name not in ("__init__.py", "__pycache__", "presets")]
    assert files
    for path in files:
        module = importlib.import_module(f"kerasformer.zoo.{path.stem}")
        kinds = {kind.backbone_type.config_type.model_type for kind in module.MODELS.values()}
        assert {kind.replace("-", "_") for kind in kinds} == {path.stem}


def test_satellites_import_faces_of_core_rooms_alone():
    """`from kerasformer.layers import Dense`, and not `from kerasformer.layers.core import Dense`."""
    inner = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in SATELLITES
        for path in folder.rglob("*.py")
        for name in imports(path)
        if is_inside_a_core_room(name)
    }
    assert not inner


def test_files_import_each_other_in_no_circle():
    """Imports inside functions and for types count."""
    graph: dict[str, set[str]] = {}
    for module, imported in import_arrows():
        graph.setdefault(module, set()).add(imported)
    TopologicalSorter(graph).prepare()  # whose error has the circle


@pytest.mark.grid
def test_private_modules_are_imported_only_in_their_package():
    for room in ("export", "kerasformer", "zoo"):
        for path in (ROOT / room).rglob("*.py"):
            parts = path.relative_to(ROOT).parent.parts
            package = ".".join(parts if room == "kerasformer" else ("kerasformer", *parts))
            for name in imports(path):
                steps = name.split(".")
                private = [i for i, part in enumerate(steps) if part.startswith("_") and not part.startswith("__")]
                if steps[0] == "kerasformer" and private:
                    assert ".".join(steps[: private[0]]) == package, f"{path} imports {name}"


def is_inside_a_core_room(name: str) -> bool:
    """Whether an imported name is neither a public name of a room of the core nor a part of one."""
    parts = name.split(".")
    return parts[0] == "kerasformer" and len(parts) > 2 and parts[1] in FACES and parts[2] not in FACES[parts[1]]


def import_arrows() -> set[tuple[str, str]]:
    """Returns the pairs of modules of which the first imports the second, or a name of it, anywhere."""
    modules = {}
    for room in ("export", "kerasformer", "zoo"):
        for path in (ROOT / room).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            modules[name if room == "kerasformer" else f"kerasformer.{name}"] = path
    return {
        (module, imported if imported in modules else imported.rpartition(".")[0])
        for module, path in modules.items()
        for imported in imports(path)
    }


def imports(path: Path) -> set[str]:
    """Returns the dotted names that a file imports anywhere."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def run(code: str, *arguments: str, cwd: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
