"""The source of `kohort.protocol.hot_codecs`: codecs of the messages that brokers read and write
most.

The ordinary codecs are Python, generated when they are first used. For the messages of
`kohort.protocol.hot` the same is generated in Cython while the package is built, in the direction
that a broker needs, and compiled to one extension module (see docs/adr). It reads
what is well formed, writes what is ordinary, and hands everything else to the ordinary codec.
"""

import importlib
from pathlib import Path

from accelerated.codecs.readers import ReaderWriter
from accelerated.codecs.tables import Tables, TypedWriter
from accelerated.codecs.writers import WriterWriter
from kohort.protocol.hot import READ, WRITTEN, declared
from kohort.protocol.layout import layout
from kohort.protocol.limits import TAGS_MAX


def hot_pairs() -> list[tuple[type, int, bool]]:
    """Each message and version, and whether it is read."""
    return [
        (_class(name), version, is_read)
        for table, is_read in ((READ, True), (WRITTEN, False))
        for name, versions in table.items()
        for version in versions
    ]


def _class(name: str) -> type:
    module, _, message = name.partition(".")
    found: type = getattr(importlib.import_module(f"kohort.protocol.messages.{module}"), message)
    return found


def source() -> str:
    """The whole module, in Cython."""
    helpers = Path(__file__).with_name("helpers.pxi").read_text(encoding="utf-8")
    texts = [f"cdef enum:\n    TAGS_MAX = {TAGS_MAX}", helpers]
    binding = ["cdef int _bind(Pair pair, key, message) except -1:"]
    declarations = ["DECLARED = {"]
    for number, (message, version, is_read) in enumerate(hot_pairs()):
        tables = Tables(number, message)
        writer: TypedWriter = ReaderWriter(tables) if is_read else WriterWriter(tables)
        function = writer.function(layout(message, version))
        key = (message.__name__, version)
        texts.append(
            f"# {message.__name__} v{version}\n"
            f"cdef PyObject *types{number}[{len(tables.classes) + 1}]\n"
            f"cdef Py_ssize_t slots{number}[{max(len(tables.slots), 1)}]\n\n\n{function}"
        )
        what = "read" if is_read else "write"
        names = f"{tuple(tables.classes)!r}, {tuple(tables.slots)!r}"
        binding += [
            f"    if key == {key!r}:",
            f"        fill(message, {names}, types{number}, slots{number})",
            f"        pair.{what} = {what}_{number}",
        ]
        declarations.append(f"    {key!r}: ({is_read}, {declared(message, version)!r}),")
    return "\n\n\n".join([*texts, "\n".join(binding), "\n".join([*declarations, "}"])]) + "\n"
