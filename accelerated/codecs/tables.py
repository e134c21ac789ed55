"""Lookup tables that the generated functions of one message need at load time."""

from typing import Any, Final

from kohort.protocol.compiler.writer import Writer
from kohort.protocol.constructs import Array, MessageStruct, NullableStruct


class Tables:
    """The classes of one message, numbered, and the attributes of theirs that are used.

    A class is known by its parent and the field of the parent that holds it, so that the extension
    module need not import the messages.
    """

    def __init__(self, number: int, message: type) -> None:
        self.number: Final = number
        self.classes: list[tuple[int, str]] = []
        """Parent and field of each class but the first, which is the message."""
        self.slots: list[tuple[int, str]] = []
        """Class and attribute."""
        self._numbers: Final[dict[type, int]] = {message: 0}

    def class_number(self, kind: type, parent: type, name: str) -> int:
        if kind not in self._numbers:
            self._numbers[kind] = len(self._numbers)
            self.classes.append((self._numbers[parent], name))
        return self._numbers[kind]

    def class_of(self, kind: type) -> str:
        """The C expression of a class."""
        return f"types{self.number}[{self._numbers[kind]}]"

    def slot(self, kind: type, name: str) -> str:
        """C expression of the slot in which objects of `kind` store an attribute."""
        known = (self._numbers[kind], name)
        if known not in self.slots:
            self.slots.append(known)
        return f"slots{self.number}[{self.slots.index(known)}]"


class TypedWriter(Writer):
    """Lines of a function in Cython, with its variables declared."""

    def __init__(self, tables: Tables) -> None:
        super().__init__({})
        self.tables = tables
        self._declared: list[str] = []

    def function(self, con: MessageStruct) -> str:
        """The whole function for a layout."""
        raise NotImplementedError

    def fields_of(self, con: MessageStruct) -> list[tuple[str, Any]]:
        """Name and construct of each field but the tagged ones, whose classes have numbers then."""
        subcons: list[Any] = con.subcons
        fields = [(renamed.name, renamed.subcon) for renamed in subcons]
        for name, sub in fields:
            inner = sub
            while isinstance(inner, (Array, NullableStruct)):
                inner = inner.subcon
            if isinstance(inner, MessageStruct):
                self.tables.class_number(inner.message, con.message, name)
        return fields

    def variable(self, c_type: str, prefix: str) -> str:
        name = self.fresh(prefix)
        self._declared.append(f"    cdef {c_type} {name}")
        return name

    def whole(self, header: str) -> str:
        """The complete function, with the generated body."""
        body = [f"    {line}" for line in self.lines]
        return "\n".join([header, *self._declared, *body])


WIDTHS: Final = {"?": 1, "b": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "16s": 16}
"""Size in bytes of each fixed-width value that has a helper."""


def suffix(code: str) -> str:
    """Suffix of the helper functions for a fixed-width value."""
    assert code in WIDTHS, f"no helper reads {code}"
    return "flag" if code == "?" else code


def prefix_width(prefix_code: str | None) -> int:
    """Bytes of the length in the classic form."""
    return WIDTHS[prefix_code or ""]
