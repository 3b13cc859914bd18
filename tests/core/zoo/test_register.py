"""Architectures of other packages: `zoo.register`, entry points, and faulty ones."""

from __future__ import annotations

import json
import types

import pytest
from typer.testing import CliRunner

from kerasformer import zoo
from kerasformer.bundle import architectures
from kerasformer.cli import app
from kerasformer.errors import InputError, UnsupportedConfigError
from kerasformer.models import registry
from kerasformer.zoo import bert, llama
from tests.core.zoo import seed_oss

SMALL = {"vocab_size": 40, "hidden_dim": 12, "num_layers": 2, "num_heads": 3, "num_key_value_heads": 1}
SMALL |= {"intermediate_dim": 20, "head_dim": 4}


@pytest.fixture(autouse=True)
def _none_is_registered(unregistered):
    architectures.installed.cache_clear()
    yield
    architectures.installed.cache_clear()


def install(folder, monkeypatch, *points):
    """Lays out the metadata of a package with these entry points."""
    metadata = folder / "kf_others-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kf-others\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(["[kerasformer.architectures]", *points, ""]))
    monkeypatch.syspath_prepend(folder)


def test_a_registered_architecture_is_like_those_of_the_zoo(tmp_path):
    with pytest.raises(UnsupportedConfigError, match="Unsupported model_type"):
        zoo.build("seed_oss")
    assert zoo.register(seed_oss) == zoo.register(seed_oss) == "seed_oss"
    assert zoo.models()["seed_oss"] == tuple(seed_oss.MODELS) and "seed_oss" in zoo.architectures()
    found = architectures.find("seed_oss")
    assert (found.name, found.branch, found.derived_from, found.year) == ("Seed-OSS", "decoder", "llama", 2025)
    model = zoo.build("seed_oss", **SMALL)
    model.save_pretrained(tmp_path)
    assert type(zoo.load(tmp_path)) is seed_oss.SeedOssCausalLM
    content = json.loads((tmp_path / "config.json").read_text())
    del content["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert type(zoo.load(tmp_path)) is seed_oss.SeedOssCausalLM
    shown = CliRunner().invoke(app, ["models", "seed_oss"]).output
    assert "Seed-OSS (decoder, derived from llama): LLaMA with biases" in shown


def test_an_installed_package_adds_architectures(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, f"seed_oss = {seed_oss.__name__}")
    listed = CliRunner().invoke(app, ["models"]).output
    assert "kf-others" in listed and registry._registered == {}, "imported only when it is used"
    with pytest.raises(UnsupportedConfigError, match="seed_oss.*Did you mean 'seed_oss'"):
        zoo.build("seed_os")
    assert type(zoo.build("seed_oss", **SMALL)) is seed_oss.SeedOssCausalLM
    assert "seed_oss" in zoo.models()


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("other = no_such_module", "other = no_such_module of kf-others cannot be used. No module named"),
        ("other = json", "other = json of kf-others cannot be used. json must have MODELS"),
        (
            f"other = {seed_oss.__name__}",
            "other = .* must be the model_type of its module. Expected: seed_oss. Received: other",
        ),
    ],
)
def test_a_faulty_entry_point_is_named(tmp_path, monkeypatch, point, message):
    install(tmp_path, monkeypatch, point)
    with pytest.raises(UnsupportedConfigError, match=f"the entry point {message}"):
        zoo.build("other")


def faulty(models):
    module = types.ModuleType("outside")
    module.MODELS = models
    return module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("bert", "A module with MODELS was expected.*Received: 'bert'"),
        (types.ModuleType("outside"), "outside must have MODELS.*MODELS=None"),
        (faulty({}), "outside must have MODELS.*MODELS={}"),
        (faulty({"fill-mask": bert.Bert}), r"MODELS\['fill-mask'\] of outside must be a class derived from Pretrained"),
        (faulty({"fill-mask": zoo.CausalLM}), "CausalLM, .*has no backbone"),
        (faulty({"fill-mask": llama.LlamaCausalLM}), "must be a class for this task.*for text-generation"),
        (faulty({**bert.MODELS, **llama.MODELS}), "must have the same backbone. Received: Bert, Llama"),
        (faulty(dict(llama.MODELS)), "'llama' of outside is that of an architecture that exists already, in .*llama"),
    ],
)
def test_a_faulty_module_is_refused(module, message):
    with pytest.raises(InputError, match=message):
        zoo.register(module)
    assert registry._registered == {}


def test_the_zoo_itself_can_be_registered():
    assert zoo.register(llama) == "llama"
    assert registry._registered == {}
