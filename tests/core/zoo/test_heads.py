"""Model classes that an architecture declares instead of defining them."""

from __future__ import annotations

import importlib
import pickle

import keras
import pytest

from kerasformer import zoo
from kerasformer.models.task_models import DenseTextClassification, TokenClassification, heads, heads_like
from kerasformer.zoo import bert, roberta


@pytest.mark.parametrize("model_type", zoo.architectures())
def test_every_class_is_found_by_its_name(model_type):
    module = zoo.architecture(model_type)
    for model in module.MODELS.values():
        name = model.__name__
        assert name.startswith(model.backbone_type.__name__) and model.__qualname__ == name
        assert model.__module__ == module.__name__ == f"kerasformer.zoo.{model_type.replace('-', '_')}"
        assert getattr(module, name) is getattr(zoo, name) is pickle.loads(pickle.dumps(model)) is model
        assert name in dir(module) and name in dir(zoo)
        assert model.__doc__ and model.__doc__ != model.__base__.__doc__
        assert keras.saving.get_registered_object(f"kerasformer>{name}") is model


def test_heads_of_another_architecture():
    class Rembert(bert.Bert):
        pass

    models = heads_like(roberta.MODELS, Rembert, TokenClassification)
    assert list(models) == list(roberta.MODELS)
    assert issubclass(models["text-classification"], roberta.MODELS["text-classification"])
    assert models["text-classification"].__name__ == "RembertTextClassification"
    assert models["token-classification"].__mro__[1] is TokenClassification
    assert {model.backbone_type for model in models.values()} == {Rembert}
    module = importlib.import_module(__name__)
    assert module.RembertFillMask is models["fill-mask"] and module.RembertFillMask.architecture == "RembertForMaskedLM"
    assert heads(Rembert, module.RembertFillMask, DenseTextClassification)["fill-mask"] is models["fill-mask"]
