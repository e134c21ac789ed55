"""Reads the certificate fields that the broker needs from the DER encoding.

Used only on certificates that OpenSSL has loaded or verified, but safe with any bytes. The subject
is decoded here too: the subject that `ssl` returns lacks the types of values, and the text that
other libraries produce differs, so principals would have other names.
"""

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
SET: Final = 0x31
OID: Final = 0x06
_OCTETS: Final = 0x04
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18

_DNS_NAME: Final = 0x82
_IP_ADDRESS: Final = 0x87
_ALTERNATIVE_NAMES: Final = "2.5.29.17"
_LENGTH_BYTES_MAX: Final = 4
_OID_BYTES_MAX: Final = 1_024
"""Maximum bytes of an object identifier; real ones have a dozen."""
_CENTURY_AT: Final = 50
"""Two-digit years from this one on belong to the 20th century (RFC 5280)."""


class DerError(ValueError):
    """The bytes are not the expected DER."""


class CertificateFields(NamedTuple):
    not_before: str
    """The beginning of the certificate's validity, as ``YYYYMMDDHHMMSSZ``."""
    not_after: str
    """The end of the certificate's validity, in the format of `not_before`."""
    subject: memoryview
    alternative_names: frozenset[bytes]
    """The alternative names, each still encoded."""


def fields_of(certificate: bytes) -> CertificateFields:
    """The fields of a certificate in DER. Raises DerError."""
    try:
        return _fields_of(memoryview(certificate))
    except (IndexError, UnicodeDecodeError) as error:
        raise DerError("the certificate is truncated") from error


def _fields_of(certificate: memoryview) -> CertificateFields:
    _, whole, _ = element(certificate)
    _, to_be_signed, _ = element(whole)
    tag, _, rest = element(to_be_signed)
    if tag == _VERSION:
        _, _, rest = element(rest)
    # The fields after the serial number are: signature, issuer, validity, subject, key.
    _, _, rest = element(rest)
    _, _, rest = element(rest)
    tag, validity, rest = element(rest)
    tag, since, until = element(validity)
    not_before = _time(tag, bytes(since).decode("ascii"))
    tag, time, _ = element(until)
    not_after = _time(tag, bytes(time).decode("ascii"))
    tag, subject, rest = element(rest)
    if tag != SEQUENCE:
        raise DerError("the certificate has no subject in the expected place")
    _, _, rest = element(rest)
    names: frozenset[bytes] = frozenset()
    while rest:
        tag, content, rest = element(rest)
        if tag == _EXTENSIONS:
            names = _alternative_names(element(content)[1])
    return CertificateFields(not_before, not_after, subject, names)


def _time(tag: int, text: str) -> str:
    if tag == _GENERALIZED_TIME:
        return text
    if tag != _UTC_TIME or not text[:2].isdigit():
        raise DerError("the certificate has no validity period")
    return f"{19 if int(text[:2]) >= _CENTURY_AT else 20}{text}"


def _alternative_names(extensions: memoryview) -> frozenset[bytes]:
    for extension in members(extensions, SEQUENCE):
        _, oid, rest = element(extension)
        if dotted(oid) != _ALTERNATIVE_NAMES:
            continue
        tag, content, rest = element(rest)
        if tag != _OCTETS:
            # Skip the optional `critical` flag.
            _, content, _ = element(rest)
        _, names, _ = element(content)
        attributes = []
        while names:
            _, _, rest = element(names)
            attributes.append(bytes(names[: len(names) - len(rest)]))
            names = rest
        return frozenset(attributes)
    return frozenset()


def hosts_of(fields: CertificateFields) -> list[str]:
    """Return the host names and addresses in a certificate, sorted."""
    hosts = []
    for encoded in fields.alternative_names:
        tag, content, _ = element(memoryview(encoded))
        if tag == _DNS_NAME:
            hosts.append(bytes(content).decode("ascii", "replace"))
        elif tag == _IP_ADDRESS and len(content) in {4, 16}:
            hosts.append(str(ip_address(bytes(content))))
    return sorted(hosts)


def is_for(host: str, hosts: Iterable[str]) -> bool:
    """Whether a certificate for `hosts` is valid for `host`, as clients check it (RFC 6125)."""
    try:
        host = str(ip_address(host))
    except ValueError:
        host = host.lower().removesuffix(".")
        parent = host.partition(".")[2]
        return any(name.lower() in {host, f"*.{parent}"} for name in hosts)
    return host in hosts


def element(data: memoryview) -> tuple[int, memoryview, memoryview]:
    """Split off an element: tag, content and rest. Raises IndexError if truncated, or DerError."""
    tag, size = data[0], data[1]
    begin = 2
    if size & 0x80:
        length_bytes = size & 0x7F
        if not 1 <= length_bytes <= _LENGTH_BYTES_MAX:
            raise DerError("the length is not valid DER")
        begin += length_bytes
        size = int.from_bytes(data[2:begin], "big")
    if begin + size > len(data):
        raise IndexError("cut off")
    return tag, data[begin : begin + size], data[begin + size :]


def members(data: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the contents of consecutive elements. Raises DerError if a tag is not `wanted`, and
    like `element`.
    """
    while data:
        tag, content, data = element(data)
        if tag != wanted:
            raise DerError("not the structure of a certificate")
        yield content


def dotted(oid: memoryview) -> str:
    """An object identifier in dotted notation. Raises IndexError if it is empty, or DerError."""
    if len(oid) > _OID_BYTES_MAX:
        # Python refuses to format a number of thousands of digits.
        raise DerError(f"an object identifier of {len(oid)} bytes")
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = numbers[0]
    root = min(first // 40, 2)
    return ".".join(map(str, (root, first - 40 * root, *numbers[1:])))


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
"""An escaped NUL in a subject's text, whose backslash is not itself escaped."""


def subject_of(certificate: bytes) -> str:
    """The subject of a DER certificate as text, its last attribute first; empty if it has none.

    Raises:
        DerError: the subject is too long, or not valid DER.
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
