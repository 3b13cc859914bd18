"""Labels that mark the places of tokens in entities: IOB, BIOES, BMES and BILOU."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

PLACES = frozenset("BIEMSLU")
"""Letters of all schemes."""
_BEGINS, _ENDS = frozenset("BSU"), frozenset("ESLU")
_SCHEMES = tuple(map(frozenset, ("BIES", "BMES", "BILU")))


@dataclass(frozen=True)
class Tag:
    """A label, such as `B-PER`.

    Attributes:
        place: Place in the entity: `B`, `I` or `M`; `E` or `L` for the end; `S` or `U` for a single token; `I` for a
            label without a place.
        kind: Type of the entity, such as `PER`; the whole label if it has no place.
    """

    place: str
    kind: str

    def continues(self, before: Tag) -> bool:
        """Returns whether a token with this label belongs to the same entity as the token before it."""
        return self.kind == before.kind and self.place not in _BEGINS and before.place not in _ENDS


OUTSIDE = Tag("I", "O")
"""Tag of tokens that belong to no entity."""


def places(labels: Iterable[str]) -> frozenset[str]:
    """Returns the letters before a hyphen that are places: `B` and `I`, and those of a scheme that has all letters."""
    found = {label[0] for label in labels if label[1:2] == "-"}
    scheme = next((scheme for scheme in _SCHEMES if found & set("BI") and found <= scheme), frozenset())
    return scheme | frozenset("BI")


def tag_of(label: str, places: Collection[str]) -> Tag:
    """Splits a label.

    Args:
        label: A label.
        places: Letters before a hyphen that are places, see `places`.
    """
    return Tag(label[0], label[2:]) if label[1:2] == "-" and label[0] in places else Tag("I", label)
