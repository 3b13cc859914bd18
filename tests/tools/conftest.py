from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.foreign.environments import need


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Chromium, for pages of sites and files."""
    from tests.tools.web.sites import browser

    need("chromium")
    with browser() as opened:
        yield opened
