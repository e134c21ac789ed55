"""Records of the rebalance history for the HTTP pages. They are stored as JSON
(docs/rebalance-history.md) and returned without being parsed completely.
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
    record_sentence = sentence(parse_text(without_members(text)))
    return b'{"sentence":%b,%b' % (json.dumps(record_sentence).encode(), text[1:])


def without_members(text: bytes) -> bytes:
    """Return a record's text without its members."""
    head, separator, _ = text.partition(MEMBERS_BEGIN)
    return head + b"}" if separator else text
