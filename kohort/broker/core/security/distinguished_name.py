"""The subject of a certificate as text, as Java writes it (RFC 2253), for names of principals.

Read from the certificate's own bytes: the subject that `ssl` returns lacks the types of values, and
other libraries produce other texts, which would be other users.
"""

import re
from collections.abc import Iterator
from typing import Final

from kohort.broker.core.security.certificate import (
    OID,
    SEQUENCE,
    SET,
    DerError,
    dotted,
    element,
    fields_of,
    members,
)

SUBJECT_BYTES_MAX: Final = 4096
"""Bound on the size of a subject, because patterns that are matched against it may backtrack."""

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Tags of UTF8String, PrintableString, T61String, IA5String, GeneralString and BMPString."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\00")
"""A NUL in the text of a subject: after a backslash that is not itself escaped."""


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate as text, its last attribute first; empty if it has none.

    Raises:
        DerError: it is too long, or not valid DER.
    """
    subject = fields_of(certificate).subject
    if len(subject) > SUBJECT_BYTES_MAX:
        raise DerError(f"the subject has {len(subject)} bytes, above {SUBJECT_BYTES_MAX}")
    try:
        parts = ["+".join(_attributes(relative_name)) for relative_name in members(subject, SET)]
    except IndexError as error:
        raise DerError("the certificate's subject is truncated") from error
    return ",".join(reversed(parts))


def has_nul(subject: str) -> bool:
    """Whether a subject, as `subject_of` writes it, has a NUL in a value.

    No real name has one. An authority that treats a NUL as the end of a name would sign text that
    it does not see.
    """
    return _NUL.search(subject) is not None


def _attributes(relative_name: memoryview) -> Iterator[str]:
    for attribute in members(relative_name, SEQUENCE):
        tag, oid, encoded = element(attribute)
        if tag != OID:
            raise DerError("an attribute without a type")
        tag, value, _ = element(encoded)
        yield _attribute(dotted(oid), tag, bytes(value), bytes(encoded))


def _attribute(oid: str, tag: int, value: bytes, encoded: bytes) -> str:
    keyword = _KEYWORDS.get(oid)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or oid}=#{encoded.hex()}"
    # Java reads every type of text as UTF-8 here, and replaces what is not valid.
    return f"{keyword}={_escaped(value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    kept = len(text.strip(_SPACES))
    lead = len(text) - len(text.lstrip(_SPACES))
    written = []
    for index, character in enumerate(text):
        if character == "\0":
            written.append("\\00")
        elif character in _ESCAPED or not lead <= index < lead + kept:
            written.append(f"\\{character}")
        else:
            written.append(character)
    return "".join(written)
