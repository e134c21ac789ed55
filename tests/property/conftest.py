"""For all property tests."""

import sys

import pytest

from kohort.protocol.codec import STRICT_OPTION


@pytest.fixture(autouse=True)
def compiled_codecs_may_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that are drawn may be such as no broker sends."""
    monkeypatch.delitem(sys._xoptions, STRICT_OPTION)
