"""Generates the decoder of a message: every length and count is checked before it is used."""

import struct
from typing import Any

from kohort.protocol.compiler.writer import Writer, absent, is_literal
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
from kohort.protocol.limits import TAGS_MAX, TEXT_BYTES_MAX
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field


class DecoderWriter(Writer):
    """Writes ``decode(buf, pos) -> (message, pos)``."""

    bytes_max: int | None = None

    def function(self, con: MessageStruct) -> str:
        with self.block("def decode(buf, pos=0):"):
            self("end = len(buf)")
            self.step()
            schema = schema_of(con.message)
            self.bytes_max = schema.bytes_max
            self(f"budget = {schema.elements_max}")
            self(f"bytes_left = {schema.bytes_max}")
            with self.block("try:"):
                result = self.struct(con)
                self(f"return {result}, pos")
            with self.block("except (IndexError, struct_error):"):
                self("raise DecodeError('the message ends early') from None")
            with self.block("except UnicodeDecodeError as error:"):
                self("raise DecodeError(f'not UTF-8: {error.reason}') from None")
        return "\n".join(self.lines)

    def struct(self, con: MessageStruct) -> str:
        """Read a structure into a new variable; return its name."""
        target = self.fresh("m")
        self(f"{target} = new({self.constant('C', con.message)})")
        for field in absent(con):
            self._default(f"{target}.{field.name}", field)
        run: list[tuple[str, str]] = []
        for name, sub in con.named(target):
            if code := fixed_format(sub):
                run.append((name, code))
            elif isinstance(sub, Sized):
                length = self.fresh("n")
                if not sub.compact:
                    run.append((length, fixed_format(sub.prefix) or ""))
                self._flush(run)
                if sub.compact:
                    self._compact_length(length)
                self._sized(sub, name, length)
            else:
                self._flush(run)
                self.value(sub, name)
        self._flush(run)
        if con.tagged is not None:
            self._tagged(con, con.tagged, target)
        return target

    def value(self, con: Any, target: str) -> None:
        """Read a single value, such as an array element, into ``target``."""
        if code := fixed_format(con):
            self._flush([(target, code)])
        elif isinstance(con, Sized):
            length = self.fresh("n")
            if con.compact:
                self._compact_length(length)
            else:
                self._flush([(length, fixed_format(con.prefix) or "")])
            self._sized(con, target, length)
        elif isinstance(con, NullableStruct):
            present = self.fresh("n")
            if con.in_tag:
                self._uvarint(present)
            else:
                self._flush([(present, "b")])
            with self.block(f"if {present} == 0:" if con.in_tag else f"if {present} < 0:"):
                self(f"{target} = None")
            with self.block("else:"):
                self(f"{target} = {self.struct(con.subcon)}")
        elif isinstance(con, MessageStruct):
            self(f"{target} = {self.struct(con)}")
        else:
            raise TypeError(f"no code for {con!r}")

    def _flush(self, run: list[tuple[str, str]]) -> None:
        """Read a run of fixed-width values with one unpack."""
        if not run:
            return
        formats = "".join(code for _, code in run)
        targets = ", ".join(target for target, _ in run)
        comma = "," if len(run) == 1 else ""
        self(f"{targets}{comma} = {self.packer('unpack_from', formats)}(buf, pos)")
        self(f"pos += {struct.calcsize('>' + formats)}")
        run.clear()

    def _compact_length(self, length: str) -> None:
        """Read uvarint(length + 1); -1 is null, as in the classic form."""
        self._uvarint(length)
        self(f"{length} -= 1")

    def _uvarint(self, target: str) -> None:
        self(f"{target} = buf[pos]")
        self("pos += 1")
        with self.block(f"if {target} > 127:"):
            self(f"{target}, pos = read_uvarint(buf, pos - 1)")

    def _sized(self, con: Sized, target: str, length: str) -> None:
        with self.block(f"if {length} < 0:"):
            if con.nullable:
                if not con.compact:
                    with self.block(f"if {length} < -1:"):
                        self(f"raise DecodeError(f'length {{{length}}} is not allowed')")
                self(f"{target} = None")
            else:
                self(f"raise DecodeError(f'length {{{length}}} is not allowed')")
        with self.block("else:"):
            if isinstance(con, Array):
                self._array(con, target, length)
            else:
                self._slice(con, target, length)

    def _slice(self, con: Sized, target: str, length: str) -> None:
        stop = self.fresh("e")
        self(f"{stop} = pos + {length}")
        with self.block(f"if {stop} > end:"):
            self(f"raise DecodeError(f'length {{{length}}} exceeds what is left')")
        if isinstance(con, Blob) and con.records:
            self(f"{target} = memoryview(buf)[pos:{stop}]")
        else:
            if self.bytes_max is not None:
                self(f"bytes_left -= {length}")
                with self.block("if bytes_left < 0:"):
                    self(f"raise DecodeError('more than {self.bytes_max} bytes of text')")
            if isinstance(con, Text):
                if con.compact:
                    with self.block(f"if {length} > {TEXT_BYTES_MAX}:"):
                        self(f"raise DecodeError(f'text of {{{length}}} bytes')")
                self(f"{target} = str(buf[pos:{stop}], 'utf-8')")
            else:
                self(f"{target} = bytes(buf[pos:{stop}])")
        self(f"pos = {stop}")

    def _array(self, con: Array, target: str, count: str) -> None:
        with self.block(f"if {count} > (end - pos) // {min_size(con.subcon)}:"):
            self(f"raise DecodeError(f'{{{count}}} elements exceed what is left')")
        self._spend(count, "array elements")
        code = fixed_format(con.subcon)
        if code is not None and len(code) == 1:
            with self.block(f"if {count} == 1:"):
                self(f"{target} = list({self.packer('unpack_from', code)}(buf, pos))")
            with self.block("else:"):
                self(f"{target} = list(unpack_array(f'>{{{count}}}{code}', buf, pos))")
            self(f"pos += {count} * {con.subcon.sizeof()}")
            return
        items, element = self.fresh("a"), self.fresh("x")
        self(f"{items} = []")
        with self.block(f"for _ in range({count}):"):
            if isinstance(con.subcon, MessageStruct):
                element = self.struct(con.subcon)
            else:
                self.value(con.subcon, element)
            self(f"{items}.append({element})")
            self.step()
        self(f"{target} = {items}")

    def _spend(self, count: str, what: str) -> None:
        """Subtract ``count`` from the message's budget of elements."""
        self(f"budget -= {count}")
        with self.block("if budget < 0:"):
            self(f"raise DecodeError('too many {what}')")

    def _tagged(self, con: MessageStruct, tagged: TaggedFields, target: str) -> None:
        fields = {field.name: field for field in schema_of(con.message).fields}
        for known in tagged.known:
            self._default(f"{target}.{known.name}", fields[known.name])
        count = self.fresh("n")
        self._uvarint(count)
        if not tagged.known:
            with self.block(f"if {count}:"):
                self(f"pos = skip_tags(buf, pos, {count})")
                self._spend(count, "tagged fields")
            return
        tag, size, stop, seen = (self.fresh(name) for name in ("t", "s", "e", "seen"))
        with self.block(f"if {count}:"):
            with self.block(f"if {count} > {TAGS_MAX}:"):
                self(f"raise DecodeError(f'{{{count}}} tagged fields')")
            self._spend(count, "tagged fields")
            self(f"{seen} = set()")
            with self.block(f"for _ in range({count}):"):
                self._uvarint(tag)
                self._uvarint(size)
                self(f"{stop} = pos + {size}")
                with self.block(f"if {stop} > end:"):
                    self(f"raise DecodeError(f'tag {{{tag}}} exceeds what is left')")
                with self.block(f"if {tag} in {seen}:"):
                    self(f"raise DecodeError(f'tag {{{tag}}} appears twice')")
                self(f"{seen}.add({tag})")
                for known in tagged.known:
                    with self.block(f"if {tag} == {known.tag}:"):
                        self._known_tag(known.con, f"{target}.{known.name}", stop)
                        self("continue")
                self(f"pos = {stop}")

    def _known_tag(self, con: Any, target: str, stop: str) -> None:
        if isinstance(con, LenientInt8):
            with self.block(f"if pos < {stop}:"):
                self(f"{target} = (buf[pos] ^ 128) - 128")
            self(f"pos = {stop}")
            return
        self.value(con, target)
        with self.block(f"if pos != {stop}:"):
            self("raise DecodeError('a tagged field does not fill its size')")

    def _default(self, target: str, field: Field) -> None:
        default = field.make_default()
        if is_literal(default):
            self(f"{target} = {default!r}")
        elif default == []:
            self(f"{target} = []")
        elif isinstance(default, (list, Struct)):
            make = type(default) if isinstance(default, Struct) else field.make_default
            self(f"{target} = {self.constant('make', make)}()")
        else:
            self(f"{target} = {self.constant('default', default)}")
