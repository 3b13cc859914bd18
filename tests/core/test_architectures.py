"""The descriptions of the architectures, which are read without Keras, and the picture of them."""

from __future__ import annotations

import pytest

from kerasformer import zoo
from kerasformer.bundle import architectures
from kerasformer.errors import UnsupportedConfigError
from kerasformer.files.sources import zoo_folder
from tests.core.zoo import table

every = pytest.mark.parametrize("found", architectures.architectures().values(), ids=lambda each: each.model_type)


@every
def test_descriptions(found):
    module = zoo.architecture(found.model_type)
    assert "\nDerived from: " in module.__doc__, "expected a line such as: Derived from: `bert`."
    assert found.name and found.summary and 2017 <= found.year < 2100 and str(found.year) in found.paper
    assert found.derived_from is None or architectures.find(found.derived_from).branch == found.branch
    assert "Reference" not in found.paper and "\n" not in found.paper


def test_the_tree_has_every_architecture_once():
    branches = architectures.lineages(architectures.architectures().values())
    members = [each for branch in branches.values() for each, _ in branch]
    assert sorted(each.model_type for each in members) == sorted(zoo.models())
    encoders = [(each.model_type, depth) for each, depth in branches["encoder"]]
    assert encoders[0] == ("bert", 0)
    names = [name for name, _ in encoders]
    assert dict(encoders)["camembert"] == 2 and names.index("bert") < names.index("roberta") < names.index("camembert")


def test_files_of_the_zoo_are_named_after_their_architectures():
    files = {path.stem for path in zoo_folder().glob("*.py")} - {"__init__"}
    assert files == {name.replace("-", "_") for name in architectures.architectures()}


@pytest.mark.parametrize("model_type", ["robertta", "XLM_Roberta", "modern-bert"])
def test_an_unknown_architecture_and_the_closest(model_type):
    with pytest.raises(
        UnsupportedConfigError, match="Expected one of albert, .*, deberta-v2, .*Did you mean '[a-z]"
    ) as e:
        architectures.find(model_type)
    with pytest.raises(UnsupportedConfigError) as of_zoo:
        zoo.build(model_type)
    assert str(of_zoo.value) == str(e.value)


def test_the_generated_files_are_up_to_date():
    assert {path.name for path in table.outdated()} == set(), f"run: {table.COMMAND}"
    drawn = {len(table.lines(path.read_text())) for path in table.PICTURES}
    assert drawn == {3 + len(architectures.architectures()) - 1}  # one architecture is the root
