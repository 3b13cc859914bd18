"""A queue in which clients take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class FairQueue(Generic[_Item]):
    """Items that wait: the clients take turns, and the items of one client are in the order of their arrival."""

    def __init__(self) -> None:
        self._by_client: OrderedDict[str, deque[_Item]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._by_client.values()))

    def put(self, client: str, item: _Item) -> None:
        """Adds an item."""
        self._by_client.setdefault(client, deque()).append(item)

    def take(self) -> _Item | None:
        """Removes and returns the next item; `None` if there is none."""
        if not self._by_client:
            return None
        client, items = next(iter(self._by_client.items()))
        item = items.popleft()
        if items:
            self._by_client.move_to_end(client)
        else:
            del self._by_client[client]
        return item

    def remove(self, item: _Item) -> bool:
        """Removes an item; returns whether it was there."""
        for client, items in self._by_client.items():
            if item in items:
                items.remove(item)
                if not items:
                    del self._by_client[client]
                return True
        return False

    def surplus(self, client: str) -> _Item | None:
        """Returns the last item of the client with the most, if these are at least two more than `client` has."""
        most = max(self._by_client.values(), key=len, default=deque[_Item]())
        has_more = len(most) >= len(self._by_client.get(client, ())) + 2
        return most[-1] if has_more else None
