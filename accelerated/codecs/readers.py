"""Generates the compiled reader of a layout: it reads all well-formed messages, including tagged
fields.

The checks are those of `kohort.protocol.compiler.decoder`, in the same order; where the decoder
raises, the compiled reader returns None.
"""

from collections.abc import Callable
from typing import Any

from accelerated.codecs.tables import WIDTHS, TypedWriter, suffix
from kohort.protocol.compiler.writer import absent, is_literal
from kohort.protocol.constructs import (
    Array,
    Blob,
    LenientInt8,
    MessageStruct,
    NullableStruct,
    Sized,
    TaggedFields,
    Text,
    fixed_format,
    min_size,
)
from kohort.protocol.limits import TEXT_BYTES_MAX
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field

Sink = Callable[[str], str]
"""Makes of the expression of a value the statement that puts it where it belongs."""


class ReaderWriter(TypedWriter):
    """Writes ``read_N(buf, data, pos, end) -> (message, pos) or None``."""

    bytes_max: int | None = None

    def function(self, con: MessageStruct) -> str:
        schema = schema_of(con.message)
        self.bytes_max = schema.bytes_max
        message = self.struct(con)
        self(f"return {message}, pos")
        return self.whole(
            f"cdef object read_{self.tables.number}"
            "(object buf, const unsigned char *data, int64_t pos, int64_t end):\n"
            f"    cdef int64_t budget = {schema.elements_max}, bytes_left = {self.bytes_max or 0}"
        )

    def struct(self, con: MessageStruct) -> str:
        """Read a structure into a new variable; return its name."""
        target = self.variable("object", "m")
        self(f"{target} = new_of({self.tables.class_of(con.message)})")
        for field in absent(con):
            self._default(con.message, target, field)
        run: list[tuple[Sink | str, str]] = []
        for name, sub in self.fields_of(con):
            sink = self._slot_sink(con.message, target, name)
            if code := fixed_format(sub):
                run.append((sink, code))
            elif isinstance(sub, Sized) and not sub.compact:
                length = self.variable("int64_t", "n")
                run.append((length, fixed_format(sub.prefix) or ""))
                self._flush(run)
                self._sized(sub, sink, length)
            else:
                self._flush(run)
                self.value(sub, sink)
        self._flush(run)
        if con.tagged is not None:
            self._tagged(con, con.tagged, target)
        return target

    def value(self, con: Any, sink: Sink) -> None:  # noqa: ANN401
        if code := fixed_format(con):
            self._flush([(sink, code)])
        elif isinstance(con, Sized):
            length = self.variable("int64_t", "n")
            if con.compact:
                self._refuse_if("pos >= end")
                self(f"{length} = data[pos]")
                with self.block(f"if {length} < 0x80:"):
                    self("pos += 1")
                with self.block("else:"):
                    self(f"{length} = read_uvarint(data, &pos, end)")
                    self._refuse_if(f"{length} < 0")
                self(f"{length} -= 1")
            else:
                self._flush([(length, fixed_format(con.prefix) or "")])
            self._sized(con, sink, length)
        elif isinstance(con, NullableStruct):
            present = self.variable("int64_t", "n")
            self._flush([(present, "b")])
            with self.block(f"if {present} < 0:"):
                self(sink("None"))
            with self.block("else:"):
                self(sink(self.struct(con.subcon)))
        elif isinstance(con, MessageStruct):
            self(sink(self.struct(con)))
        else:
            raise TypeError(f"no code for {con!r}")

    def _slot_sink(self, owner: type, target: str, name: str) -> Sink:
        slot = self.tables.slot(owner, name)
        return lambda expression: f"set_slot({target}, {slot}, {expression})"

    def _refuse_if(self, condition: str) -> None:
        with self.block(f"if {condition}:"):
            self("return None")

    def _flush(self, run: list[tuple[Sink | str, str]]) -> None:
        """Read a run of fixed-width values after one check."""
        if not run:
            return
        self._refuse_if(f"end - pos < {sum(WIDTHS[code] for _, code in run)}")
        for target, code in run:
            if isinstance(target, str):
                self(f"{target} = int_{suffix(code)}(data + pos)")
            else:
                self(target(f"read_{suffix(code)}(data + pos)"))
            self(f"pos += {WIDTHS[code]}")
        run.clear()

    def _sized(self, con: Sized, sink: Sink, length: str) -> None:
        if con.nullable:
            with self.block(f"if {length} == -1:"):
                self(sink("None"))
            with self.block("else:"):
                self._body(con, sink, length)
        else:
            self._body(con, sink, length)

    def _body(self, con: Sized, sink: Sink, length: str) -> None:
        if isinstance(con, Array):
            self._array(con, sink, length)
            return
        self._refuse_if(f"{length} < 0 or {length} > end - pos")
        if isinstance(con, Blob) and con.records:
            self(sink(f"memoryview(buf)[pos : pos + {length}]"))
        else:
            if self.bytes_max is not None:
                self(f"bytes_left -= {length}")
                self._refuse_if("bytes_left < 0")
            if isinstance(con, Text):
                self._refuse_if(f"{length} > {TEXT_BYTES_MAX}")
                text = self.variable("object", "x")
                self(f"{text} = read_text(data + pos, {length})")
                self._refuse_if(f"{text} is None")
                self(sink(text))
            else:
                self(sink(f"PyBytes_FromStringAndSize(<const char *>data + pos, {length})"))
        self(f"pos += {length}")

    def _array(self, con: Array, sink: Sink, count: str) -> None:
        self._refuse_if(f"{count} < 0 or {count} > (end - pos) // {min_size(con.subcon)}")
        self(f"budget -= {count}")
        self._refuse_if("budget < 0")
        code = fixed_format(con.subcon)
        if code is not None:
            width = WIDTHS[code]
            self(sink(f"read_list(read_{suffix(code)}, {width}, data + pos, {count})"))
            self(f"pos += {count} * {width}")
            return
        items = self.variable("list", "a")
        index = self.variable("int64_t", "i")
        self(f"{items} = []")
        with self.block(f"for {index} in range({count}):"):
            self.value(con.subcon, lambda expression: f"{items}.append({expression})")
        self(sink(items))

    def _tagged(self, con: MessageStruct, tagged: TaggedFields, target: str) -> None:
        fields = {field.name: field for field in schema_of(con.message).fields}
        for known in tagged.known:
            self._default(con.message, target, fields[known.name])
        self._refuse_if("pos >= end")
        with self.block("if data[pos] == 0:"):
            self("pos += 1")
        with self.block("else:"):
            if not tagged.known:
                self._refuse_if("skip_tags(data, &pos, end, &budget) < 0")
                return
            count, index, tag, stop = (self.variable("int64_t", prefix) for prefix in "nite")
            seen = self.variable("set", "s")
            self(f"{count} = count_of_tags(data, &pos, end, &budget)")
            self._refuse_if(f"{count} < 0")
            self(f"{seen} = set()")
            with self.block(f"for {index} in range({count}):"):
                self(f"{tag} = next_tag(data, &pos, end, {seen}, &{stop})")
                self._refuse_if(f"{tag} < 0")
                for known in tagged.known:
                    with self.block(f"if {tag} == {known.tag}:"):
                        slot = self.tables.slot(con.message, known.name)
                        self._known_tag(known.con, target, slot, stop)
                        self("continue")
                self(f"pos = {stop}")

    def _known_tag(self, con: Any, target: str, slot: str, stop: str) -> None:  # noqa: ANN401
        """Read a tag into an attribute that has its default already."""

        def sink(expression: str) -> str:
            return f"replace_slot({target}, {slot}, {expression})"

        if isinstance(con, LenientInt8):
            with self.block(f"if pos < {stop}:"):
                self(sink("read_b(data + pos)"))
            self(f"pos = {stop}")
            return
        self.value(con, sink)
        self._refuse_if(f"pos != {stop}")

    def _default(self, owner: type, target: str, field: Field) -> None:
        default = field.make_default()
        sink = self._slot_sink(owner, target, field.name)
        if is_literal(default):
            self(sink(repr(default)))
        elif default == []:
            self(sink("[]"))
        elif isinstance(default, Struct):
            self.tables.class_number(type(default), owner, field.name)
            self(sink(f"(<object>{self.tables.class_of(type(default))})()"))
        else:
            raise TypeError(f"no code for the default {default!r}")
