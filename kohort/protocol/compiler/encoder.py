"""Generates a layout's encoder: small fields share a buffer, and large records are not copied."""

from typing import Any, Final

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
)
from kohort.protocol.limits import TEXT_BYTES_MAX
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field

RECORDS_COPY_MAX: Final = 2_048
"""Record payloads up to this size are copied into `out`; larger ones stay buffers of their own."""


class EncoderWriter(Writer):
    """Generates ``encode_into(m, out)``, which returns the buffers of `m`; `out` is the first."""

    def function(self, con: MessageStruct) -> str:
        with self.block("def encode_into(m, out):"):
            self.step()
            with self.block("try:"):
                self("parts = [out]")
                self.struct(con, "m")
            with self.block(
                "except (struct_error, TypeError, AttributeError, UnicodeError) as error:"
            ):
                self("raise EncodeError(f'{type(m).__name__}: {error}') from error")
            self("return parts")
        return "\n".join(self.lines)

    def struct(self, con: MessageStruct, source: str) -> None:
        for field in absent(con):
            self._refuse_unless_default(con, source, field)
        run: list[tuple[str, str]] = []
        for name, sub in con.named(source):
            if code := fixed_format(sub):
                run.append((name, code))
            elif isinstance(sub, Sized):
                self._sized(sub, name, run)
            else:
                self._flush(run)
                self.value(sub, name)
        if con.tagged is not None and not con.tagged.known:
            # No tags in this version: their count, a zero byte, is packed with the run.
            self._flush(run, "x")
            return
        self._flush(run)
        if con.tagged is not None:
            self._tagged(con, con.tagged, source)

    def value(self, con: Any, source: str) -> None:
        if code := fixed_format(con):
            self._flush([(source, code)])
        elif isinstance(con, Sized):
            self._sized(con, source, [])
        elif isinstance(con, NullableStruct):
            with self.block(f"if {source} is None:"):
                self("out.append(0)" if con.in_tag else "out.append(255)")
            with self.block("else:"):
                self("out.append(1)")
                inner = self.fresh("m")
                self(f"{inner} = {source}")
                self.struct(con.subcon, inner)
        elif isinstance(con, MessageStruct):
            inner = self.fresh("m")
            self(f"{inner} = {source}")
            self.struct(con, inner)
        elif isinstance(con, LenientInt8):
            self._flush([(source, "b")])
        else:
            raise TypeError(f"no code for {con!r}")

    def _flush(self, run: list[tuple[str, str]], padding: str = "") -> None:
        """Generate one `pack` call for the fixed-size fields in `run`; padding "x" adds a zero."""
        if run:
            self._check_uuids(run)
            self(f"out += {self._packed(run, padding)}")
            run.clear()
        elif padding:
            self("out.append(0)")

    def _packed(self, run: list[tuple[str, str]], padding: str = "") -> str:
        formats = "".join(code for _, code in run) + padding
        sources = ", ".join(source for source, _ in run)
        return f"{self.packer('pack', formats)}({sources})"

    def _check_uuids(self, run: list[tuple[str, str]]) -> None:
        """Generate length checks of uuids, which Python's struct would silently cut or pad."""
        for source, code in run:
            if code == "16s":
                with self.block(f"if len({source}) != 16:"):
                    self(f"raise EncodeError(f'{source}: a uuid of {{len({source})}} bytes')")

    def _compact_length(
        self, length: str, run: list[tuple[str, str]], *, is_text: bool = False
    ) -> None:
        """Generate code that packs the fixed-size fields in `run`, with uvarint(length + 1)
        if that is one byte; a longer one is appended after them.
        """
        self._check_uuids(run)
        with self.block(f"if {length} < 127:"):
            if run:
                self(f"out += {self._packed([*run, (f'{length} + 1', 'B')])}")
            else:
                self(f"out.append({length} + 1)")
        with self.block("else:"):
            if is_text:
                with self.block(f"if {length} > {TEXT_BYTES_MAX}:"):
                    self(f"raise EncodeError(f'text of {{{length}}} bytes')")
            if run:
                self(f"out += {self._packed(run)}")
            self(f"append_uvarint(out, {length} + 1)")
        run.clear()

    def _sized(self, con: Sized, source: str, run: list[tuple[str, str]]) -> None:
        """Generate code that appends the fixed-size fields in `run`, then a length-prefixed value.
        A prefix of fixed size is packed together with these fields.
        """
        value, length = self.fresh("v"), self.fresh("n")
        self(f"{value} = {source}")
        measure = f"len({value})"
        if con.nullable:
            with self.block(f"if {value} is None:"):
                self(f"{length} = -1")
                self(f"{value} = {'()' if isinstance(con, Array) else repr(b'')}")
            with self.block("else:"):
                if isinstance(con, Text):
                    self(f"{value} = {value}.encode()")
                self(f"{length} = {measure}")
        else:
            if isinstance(con, Text):
                self(f"{value} = {value}.encode()")
            self(f"{length} = {measure}")
        if con.compact:
            self._compact_length(length, run, is_text=isinstance(con, Text))
        else:
            run.append((length, fixed_format(con.prefix) or ""))
            self._flush(run)
        self._body(con, value, length)

    def _body(self, con: Sized, value: str, length: str) -> None:
        if isinstance(con, Array):
            self._elements(con, value, length)
        elif isinstance(con, Blob) and con.records:
            with self.block(f"if {length} > {RECORDS_COPY_MAX}:"):
                self(f"parts.append({value})")
                self("out = bytearray()")
                self("parts.append(out)")
            with self.block("else:"):
                self(f"out += {value}")
        else:
            self(f"out += {value}")

    def _elements(self, con: Array, value: str, length: str) -> None:
        code = fixed_format(con.subcon)
        if code is not None and len(code) == 1:
            with self.block(f"if {length} == 1:"):
                self(f"out += {self.packer('pack', code)}(*{value})")
            with self.block(f"elif {length} > 0:"):
                self(f"out += pack_array(f'>{{{length}}}{code}', *{value})")
            return
        element = self.fresh("x")
        with self.block(f"for {element} in {value}:"):
            if isinstance(con.subcon, MessageStruct):
                self.struct(con.subcon, element)
            else:
                self.value(con.subcon, element)
            self.step()

    def _tagged(self, con: MessageStruct, tagged: TaggedFields, source: str) -> None:
        fields = {field.name: field for field in schema_of(con.message).fields}
        count, outer = self.fresh("n"), self.fresh("o")
        self(f"{count} = 0")
        for known in tagged.known:
            with self.block(f"if {self._differs(source, fields[known.name])}:"):
                self(f"{count} += 1")
        self(f"out.append({count})")
        with self.block(f"if {count}:"):
            for known in tagged.known:
                with self.block(f"if {self._differs(source, fields[known.name])}:"):
                    self(f"{outer} = out")
                    self("out = bytearray()")
                    self.value(known.con, f"{source}.{known.name}")
                    self(f"append_uvarint({outer}, {known.tag})")
                    self(f"append_uvarint({outer}, len(out))")
                    self(f"{outer} += out")
                    self(f"out = {outer}")

    def _differs(self, source: str, field: Field) -> str:
        """Return an expression that is true if the field does not have its default."""
        default = field.make_default()
        name = f"{source}.{field.name}"
        is_nullable = field.nullable.high >= 0
        if default is None:
            return f"{name} is not None"
        if default == [] and isinstance(default, list):
            return f"{name} is None or {name}" if is_nullable else name
        if is_literal(default):
            return f"{name} != {default!r}"
        if isinstance(default, Struct):
            # Compare field by field: `Struct.__eq__` takes ten times as long.
            inner = [self._differs(name, field) for field in schema_of(type(default)).fields]
            return " or ".join([f"{name} is None", *inner] if is_nullable else inner)
        return f"{name} != {self.constant('default', default)}"

    def _refuse_unless_default(self, con: MessageStruct, source: str, field: Field) -> None:
        if field.options.ignorable:
            return
        with self.block(f"if {self._differs(source, field)}:"):
            text = f"{con.message.__name__}.{field.name} cannot be expressed in this version"
            self(f"raise EncodeError({text!r})")
