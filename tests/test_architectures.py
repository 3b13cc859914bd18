"""The descriptions of the architectures, which are read without Keras, and the picture of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerasformer import architectures, zoo
from kerasformer.errors import UnsupportedConfigError
from kerasformer.models.decoder import CausalDecoder
from kerasformer.models.encoder import BidirectionalEncoder
from kerasformer.models.encoder_decoder import EncoderDecoder
from kerasformer.sources import zoo_folder
from kerasformer.viz import draw_family_tree

BASES = {"encoder": BidirectionalEncoder, "decoder": CausalDecoder, "encoder-decoder": EncoderDecoder}
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "models.svg"
every = pytest.mark.parametrize("found", architectures.architectures().values(), ids=lambda each: each.model_type)


@every
def test_descriptions(found):
    module = zoo.architecture(found.model_type)
    assert "\nDerived from: " in module.__doc__, "expected a line such as: Derived from: `bert`."
    assert found.name and found.summary and 2017 <= found.year < 2100 and str(found.year) in found.paper
    assert found.derived_from is None or architectures.find(found.derived_from).branch == found.branch
    assert "Reference" not in found.paper and "\n" not in found.paper
    kinds = module.MODELS
    assert list(found.tasks) == list(kinds)
    assert issubclass(next(iter(kinds.values())).backbone_type, BASES[found.branch])


def test_the_tree_has_every_architecture_once():
    members = [each for branch in architectures.BRANCHES for each, _ in architectures.lineage(branch)]
    assert sorted(each.model_type for each in members) == sorted(zoo.models())
    encoders = [(each.model_type, depth) for each, depth in architectures.lineage("encoder")]
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


def lines(path: Path) -> list[str]:
    """Returns the names of the lines of a picture, which have the texts of both their ends."""
    return re.findall(r'<g id="([^"]+-to-[^"]+)"', path.read_text(encoding="utf-8"))


def test_the_picture_of_the_page_is_up_to_date(tmp_path):
    drawn = tmp_path / "models.svg"
    draw_family_tree({branch: architectures.lineage(branch) for branch in architectures.BRANCHES}, drawn)
    assert len(lines(drawn)) == 3 + len(architectures.architectures()) - 1  # the root is one of them
    assert lines(PICTURE) == lines(drawn), "run: kerasformer models --picture docs/pictures/models.svg"
