"""Base class of DecoderWriter and EncoderWriter: collects the lines of one function."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kohort.protocol.constructs import MessageStruct
from kohort.protocol.message import schema_of
from kohort.protocol.schema import Field


class Writer:
    """Lines of a function under construction, and the names that they use."""

    def __init__(self, names: dict[str, Any], *, in_steps: bool = False) -> None:
        """`in_steps`: whether the function is a generator."""
        self.lines: list[str] = []
        self.names = names
        self._indent = 0
        self._counter = 0
        self._in_steps = in_steps

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self._indent + line)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self(header)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """Return an unused variable name."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def step(self) -> None:
        """Add a `yield` if the function is a generator."""
        if self._in_steps:
            self("yield")

    def constant(self, prefix: str, value: Any) -> str:
        """Return a global name of the generated function, bound to ``value``."""
        for name, bound in self.names.items():
            if bound is value and name.startswith(prefix):
                return name
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def packer(self, method: str, formats: str) -> str:
        """Return the global name of ``struct.Struct(">" + formats).method``."""
        name = f"{method}_{formats.replace('?', 'T')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + formats), method)
        return name


def absent(con: MessageStruct) -> list[Field]:
    """Return the message class's fields that one version (`con`, its layout) does not have."""
    present = {sub.name for sub in con.subcons}
    if con.tagged is not None:
        present |= {field.name for field in con.tagged.known}
    return [field for field in schema_of(con.message).fields if field.name not in present]


def is_literal(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, str, bytes))
