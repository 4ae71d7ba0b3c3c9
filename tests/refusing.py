"""What the tests of labkit's errors share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def check_refusal(call: Callable[[], Any], error: type[Exception], says: Iterable[str]) -> None:
    """Demand that a call raises this very error, and that its message has these words."""
    with pytest.raises(error) as raised:
        call()
    assert raised.type is error
    for words in says:
        assert words in str(raised.value)
