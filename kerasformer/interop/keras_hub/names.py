"""Recognition of KerasHub's objects and presets, without importing KerasHub."""

from __future__ import annotations

from kerasformer.files.reading import JsonMapping

PACKAGES = ("keras_hub", "keras_nlp")


def is_keras_hub(value: object) -> bool:
    """Returns whether a value is an instance of a class of KerasHub, or of a class derived from one."""
    return any(is_hub_class(base) for base in type(value).__mro__)


def is_hub_class(cls: type) -> bool:
    """Returns whether a class is defined in KerasHub; a class derived from it may compute something else."""
    return cls.__module__.split(".")[0] in PACKAGES


def is_preset(content: JsonMapping) -> bool:
    """Returns whether the content of a `config.json` is that of a KerasHub preset."""
    return "class_name" in content and str(content.get("registered_name", "")).split(">")[0] in PACKAGES
