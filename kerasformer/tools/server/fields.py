"""Fields of a request: each is read once with its type; the others are unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kerasformer.basics.arguments import Kind, check, shown
from kerasformer.errors import KerasformerError
from kerasformer.tools.server.replies import ApiError, refused


class Fields:
    """Fields of the body of a request.

    Args:
        body: The JSON object.
    """

    def __init__(self, body: Mapping[str, object]) -> None:
        self._unread = dict(body)

    def read(self, name: str, kind: Kind, default: object = None) -> Any:
        """Returns the value of a field, and `default` if it is missing or null.

        Raises:
            ApiError: a value of another type.
        """
        value = self._unread.pop(name, None)
        if value is None:
            return default
        try:
            return check(name, value, kind)
        except KerasformerError as error:
            raise refused(error, name) from error

    def required(self, name: str, kind: Kind) -> Any:
        """Returns the value of a field.

        Raises:
            ApiError: the field is missing, null or of another type.
        """
        if self._unread.get(name) is None:
            raise ApiError(400, f"Missing required parameter: '{name}'", param=name, code="missing_required_parameter")
        return self.read(name, kind)

    def ignore(self, *names: str) -> None:
        """Ignores fields that do not change an answer."""
        for name in names:
            self._unread.pop(name, None)

    def take_others(self, without_effect: Mapping[str, tuple[object, ...]]) -> dict[str, object]:
        """Returns the fields that are left, without those that this server does not support.

        Args:
            without_effect: Fields of the API that this server does not support, with values that ask for nothing.
        Raises:
            ApiError: an unsupported field.
        """
        others = {name: value for name, value in self._unread.items() if name not in without_effect}
        self.ignore(*others)
        self.refuse_others(without_effect)
        return others

    def refuse_others(self, without_effect: Mapping[str, tuple[object, ...]]) -> None:
        """Checks that no field is left.

        Args:
            without_effect: Fields of the API that this server does not support, with values that ask for nothing.
        Raises:
            ApiError: an unsupported or an unknown field.
        """
        for name, value in self._unread.items():
            if name not in without_effect:
                short = name[:80]
                raise ApiError(
                    400, f"Unrecognized request argument supplied: {short}", param=short, code="unknown_parameter"
                )
            if value is not None and value not in without_effect[name]:
                raise ApiError(
                    400,
                    f"This server does not support '{name}'. Expected: no such parameter. Received: {shown(value)}",
                    param=name,
                    code="unsupported_parameter",
                )
