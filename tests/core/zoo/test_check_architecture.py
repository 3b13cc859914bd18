"""`kerasformer.tools.testing.check_architecture`, on an architecture outside of the package and on faulty ones."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from kerasformer import zoo
from kerasformer.errors import InputError
from kerasformer.models import task_models
from kerasformer.tools.testing import Case, check_architecture, exports
from kerasformer.tools.testing.architecture import check_heads
from tests.core.export.text_models import ROWS
from tests.core.zoo import seed_oss
from tests.core.zoo.cases import FIRST, LLAMA

SETTINGS = {**LLAMA, "head_dim": 8}


pytestmark = pytest.mark.usefixtures("unregistered")


@pytest.mark.grid
def test_an_architecture_outside_of_the_package():
    seen = []
    report = check_architecture(
        seed_oss, SETTINGS, exports=False, progress=lambda stage, done, total: seen.append(stage)
    )
    assert report.model_type == "seed_oss" and "seed_oss" in zoo.models()
    assert report.tasks == tuple(task for task in seed_oss.MODELS if task != "sentence-similarity")
    assert 0 < max(report.errors.values()) <= 1e-5
    assert "text-generation: cache" in seen and "question-answering: tensors" in seen
    assert "outputs with left padding: " in str(report) and report.support == {}


@pytest.mark.grid
def test_its_exports(monkeypatch):
    """In one format and recipe, since test_exports_of_other_architectures has the others."""
    monkeypatch.setattr(exports, "FORMATS", ("onnx",))
    monkeypatch.setattr(exports, "RECIPES", ("int8",))
    report = check_architecture(seed_oss.SeedOssCausalLM, SETTINGS, tasks=["text-generation"])
    exported = {name: error for name, error in report.errors.items() if name.startswith("export")}
    assert len(exported) == 1 and max(exported.values()) < 0.15
    assert {"gpu", "litert-lm", "genai"} <= set(report.support) and report.support["gpu"] == "exported"


@pytest.mark.parametrize("case", FIRST, ids=str)
def test_every_architecture_has_the_heads_of_the_reference(case):
    check_heads(case)


ALL_EXPORTS = [
    (case, format, quantize)
    for case in FIRST
    if case.model_type not in {row.model_type for row in ROWS.values()}
    for format in exports.FORMATS
    for quantize in exports.RECIPES
]
"""Exports of the architectures without a row in tests/core/export/text_models.py."""
CHOSEN = ALL_EXPORTS[::5]
"""One export of each architecture, of all formats and recipes in turn."""


@pytest.mark.parametrize(
    ("case", "format", "quantize"),
    [
        pytest.param(*export, marks=() if export in CHOSEN else pytest.mark.release, id="-".join(map(str, export)))
        for export in ALL_EXPORTS
    ],
)
@pytest.mark.grid
def test_exports_of_other_architectures(loaded, tmp_path, case, format, quantize):
    task = case.tasks[0]
    model = exports.text_model(case, task, loaded((case, task)).model.config)
    exports.check_export(model, tmp_path / "bundle", format, quantize)


def outside(backbone, *models):
    """Returns a module with a variant of Seed-OSS."""
    module = types.ModuleType("outside")
    module.__file__ = "outside.py"
    module.MODELS = task_models.heads(backbone, *(models or (zoo.CausalLM, task_models.CausalFeatures)))
    return module


class MissingRow(seed_oss.SeedOss):
    """Lacks a row of the weight table."""

    architecture_prefix = "SeedOss"

    def layer_rows(self):
        """Returns the weight table of one layer, without a norm."""
        return [row for row in super().layer_rows() if "feed_forward_norm" not in row.variables[0]]


class WrongRow(seed_oss.SeedOss):
    """Exchanges two matrices."""

    architecture_prefix = "SeedOss"

    def layer_rows(self):
        """Returns the weight table of one layer, with keys and values exchanged."""
        names = {"attention/key/kernel": "v_proj.weight", "attention/value/kernel": "k_proj.weight"}
        return [
            type(row)(row.variables, f"self_attn.{names[row.variables[0]]}", row.transpose)
            if row.variables[0] in names
            else row
            for row in super().layer_rows()
        ]


class WrongCache(seed_oss.SeedOss):
    """Declares a cache for too few layers."""

    architecture_prefix = "SeedOss"

    def cache_specs(self):
        """Returns the declarations of all layers but one."""
        return super().cache_specs()[:-1]


class UnknownClass(seed_oss.SeedOss):
    """Names classes that `transformers` does not have."""

    architecture_prefix = "SeedFoss"


OTHER_TASKS = ("text-classification", "token-classification", "question-answering")


@pytest.mark.parametrize(
    ("module", "without", "message"),
    [
        (outside(MissingRow), OTHER_TASKS, "'loading' of text-generation.*feed_forward_norm"),
        (outside(WrongRow), OTHER_TASKS, "'outputs with no padding' of text-generation.*logits: error"),
        (outside(WrongCache), OTHER_TASKS, "of text-generation.*cache"),
        (
            outside(UnknownClass),
            OTHER_TASKS,
            "has no class SeedFossForCausalLM, which UnknownClassCausalLM",
        ),
        (outside(MissingRow), (), r"'heads'.*no head for.*text-classification \(SeedOssForSequenceClassification\)"),
    ],
)
@pytest.mark.grid
def test_what_is_missing_is_named(module, without, message):
    with pytest.raises(AssertionError, match=f"(?s)seed_oss fails the check .*{message}.*outside.py"):
        check_architecture(module, SETTINGS, without=without, exports=False)


def test_a_missing_extra_is_named():
    code = 'import sys; sys.modules["torch"] = None; import kerasformer.tools.testing'
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "MissingExtraError: torch is required here" in result.stderr and "[test]" in result.stderr


def test_an_unknown_task_is_refused():
    with pytest.raises(InputError, match="seed_oss has no such task. Expected: text-generation, .*'?fill-mask"):
        check_architecture(seed_oss, SETTINGS, tasks=["fill-mask"])
    assert str(Case("name", "seed_oss", {})) == "name"
