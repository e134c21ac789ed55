"""Records of the rebalance history on the pages of the HTTP port. They are JSON texts already
(docs/rebalance-history.md) and are passed through without being parsed.
"""

import json
from typing import Final

from kohort.groups.history.sentence import sentence
from kohort.groups.history.text import parse_text

MEMBERS_BEGIN: Final = b',"members":['
"""Marks the beginning of a record's members. They come last, and this text cannot occur inside a
value, where its quotation marks would be escaped."""


def with_sentence(text: bytes) -> bytes:
    """Return a record's text with the field "sentence" before all others.

    The sentence does not depend on the members, which may be a thousand and are not parsed.
    """
    made = sentence(parse_text(without_members(text)))
    return b'{"sentence":%b,%b' % (json.dumps(made).encode(), text[1:])


def without_members(text: bytes) -> bytes:
    """Return a record's text without its members."""
    head, found, _ = text.partition(MEMBERS_BEGIN)
    return head + b"}" if found else text
