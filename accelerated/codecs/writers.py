"""Generates the compiled writer of a layout; unusual values are left to Python.

Where `kohort.protocol.compiler.encoder` raises, or a value has an unexpected type, the compiled
writer returns -1, and has written nothing.
"""

from typing import Any, Final

from accelerated.codecs.tables import WIDTHS, TypedWriter, prefix_width, suffix
from kohort.protocol.compiler.encoder import RECORDS_COPY_MAX
from kohort.protocol.compiler.writer import absent
from kohort.protocol.constructs import (
    Array,
    Blob,
    MessageStruct,
    NullableStruct,
    Sized,
    TaggedFields,
    Text,
    fixed_format,
)
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field
from kohort.protocol.types import ZERO_UUID


class WriterWriter(TypedWriter):
    """Writes ``write_N(m, out) -> 0 or -1``. References are borrowed: no Python runs meanwhile."""

    def function(self, con: MessageStruct) -> str:
        self.struct(con, "m")
        self("return 0")
        return self.whole(f"cdef int write_{self.tables.number}(PyObject *m, Out *out) noexcept:")

    def struct(self, con: MessageStruct, source: str) -> None:
        self._refuse_if(f"not is_a({source}, {self.tables.class_of(con.message)})")
        for field in absent(con):
            if not field.options.ignorable:
                self._refuse_if(self._differs(con.message, source, field))
        for name, sub in self.fields_of(con):
            self.value(sub, f"get_slot({source}, {self.tables.slot(con.message, name)})")
        if con.tagged is not None:
            self._tagged(con, con.tagged, source)

    def value(self, con: Any, source: str) -> None:  # noqa: ANN401
        if code := fixed_format(con):
            self._put(f"put_{suffix(code)}(out, {source})")
        elif isinstance(con, Sized):
            width = 0 if con.compact else prefix_width(fixed_format(con.prefix))
            how = f"out, {source}, {width}, {int(con.nullable)}"
            if isinstance(con, Array):
                self._array(con, source, how)
            elif isinstance(con, Text):
                self._put(f"put_text({how})")
            elif isinstance(con, Blob) and con.records:
                self._put(f"put_records({how}, {RECORDS_COPY_MAX})")
            else:
                self._put(f"put_blob({how})")
        elif isinstance(con, (MessageStruct, NullableStruct)):
            inner = self.variable("PyObject *", "m")
            self(f"{inner} = {source}")
            if isinstance(con, MessageStruct):
                self.struct(con, inner)
                return
            with self.block(f"if is_none({inner}):"):
                self._put("put_integer(out, -1, 1)")
            with self.block("else:"):
                self._put("put_integer(out, 1, 1)")
                self.struct(con.subcon, inner)
        else:
            raise TypeError(f"no code for {con!r}")

    def _refuse_if(self, condition: str) -> None:
        with self.block(f"if {condition}:"):
            self("return -1")

    def _put(self, call: str) -> None:
        self._refuse_if(f"{call} < 0")

    def _array(self, con: Array, source: str, how: str) -> None:
        items = self.variable("PyObject *", "a")
        count, index = self.variable("Py_ssize_t", "n"), self.variable("Py_ssize_t", "i")
        self(f"{items} = {source}")
        self(f"{count} = put_count({how.replace(source, items)})")
        self._refuse_if(f"{count} < 0")
        with self.block(f"for {index} in range({count}):"):
            self.value(con.subcon, f"item_of({items}, {index})")

    def _tagged(self, con: MessageStruct, tagged: TaggedFields, source: str) -> None:
        """Writes known tags of fixed width; others have a different path."""
        fields = {field.name: field for field in schema_of(con.message).fields}
        widths: list[tuple[str, int, int, str, str]] = []
        for known in tagged.known:
            differs = self._differs(con.message, source, fields[known.name])
            code = fixed_format(known.con)
            if code is None:
                self._refuse_if(differs)
                continue
            present = self.variable("int", "p")
            self(f"{present} = {differs}")
            slot = self.tables.slot(con.message, known.name)
            widths.append((present, known.tag, WIDTHS[code], suffix(code), slot))
        count = " + ".join(present for present, *_ in widths) or "0"
        self._put(f"put_integer(out, {count}, 1)")
        for present, tag, width, name, slot in widths:
            with self.block(f"if {present}:"):
                self._put(f"put_uvarint(out, {tag})")
                self._put(f"put_uvarint(out, {width})")
                self._put(f"put_{name}(out, get_slot({source}, {slot}))")

    def _differs(self, owner: type, source: str, field: Field) -> str:
        """An expression: whether the field differs from its default in value or type."""
        default = field.make_default()
        value = f"get_slot({source}, {self.tables.slot(owner, field.name)})"
        if isinstance(default, Struct):
            kind = type(default)
            self.tables.class_number(kind, owner, field.name)
            inner = self.variable("PyObject *", "m")
            self(f"{inner} = {value}")
            self._refuse_if(f"not is_a({inner}, {self.tables.class_of(kind)})")
            return " or ".join(self._differs(kind, inner, part) for part in schema_of(kind).fields)
        if isinstance(default, int) and not isinstance(default, bool):
            return f"not is_integer({value}, {default})"
        if default == []:
            return f"not is_empty_list({value})"
        return f"not {_TESTS[default]}({value})"


_TESTS: Final = {
    None: "is_none",
    False: "is_false",
    True: "is_true",
    "": "is_empty_text",
    b"": "is_empty_bytes",
    ZERO_UUID: "is_zero_uuid",
}
"""Helpers that compare a value with a default, by value and type."""
