"""A compiled module of codecs that does not fit the sources, or their messages."""

import importlib
from typing import Any

from accelerated.codecs.generator import hot_pairs
from kohort.protocol.codec import codec
from kohort.protocol.hot import declared, is_hot
from kohort.protocol.message import field, record, schema_of
from kohort.protocol.messages import membership
from kohort.protocol.types import Int16, Int32, String
from tests.property.hot_codecs import COMPILED, ROOT, needs_compiled
from tests.property.message_values import full_value

pytestmark = needs_compiled


def test_what_is_compiled_is_what_is_declared_here() -> None:
    module: Any = importlib.import_module("kohort.protocol.hot_codecs")
    expected = {
        (message.__name__, version): (is_read, declared(message, version))
        for message, version, is_read in hot_pairs()
    }
    assert expected == module.DECLARED, "compile it again: pip install -e ."
    sources = [
        *(ROOT / "accelerated/codecs").iterdir(),
        *(ROOT / "kohort/protocol/compiler").glob("*.py"),
    ]
    newest = max(one.stat().st_mtime for one in sources if one.is_file())
    assert COMPILED.stat().st_mtime >= newest, "compile it again: pip install -e ."


def test_a_class_of_another_declaration_is_not_given_to_what_is_compiled() -> None:
    @record(versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: String

    other: Any = HeartbeatRequest
    other.__module__ = membership.HeartbeatRequest.__module__
    assert is_hot(other, 4, "decode")
    assert codec(other, 4).encode(other(group_id="g")) == b"\x02g\x00"
    assert codec(other, 4).decode(b"\x02g\x00")[0].group_id == "g"


def test_another_class_of_the_same_declaration_is_not_given_to_it_either() -> None:
    present = membership.HeartbeatRequest
    encoded = codec(present, 4).encode(full_value(present, 4))
    assert codec(present, 4).decode(encoded)[0].__class__ is present
    namespace = {"__slots__": (), "schema": schema_of(present)}
    twin: Any = type(
        "HeartbeatRequest", (present,), {**namespace, "__module__": present.__module__}
    )
    assert is_hot(twin, 4, "decode")
    assert declared(twin, 4) == declared(present, 4)
    codec(twin, 4).decode(encoded)
    assert codec(present, 4).decode(encoded)[0].__class__ is present


def test_whatever_a_codec_depends_on_is_part_of_its_declaration() -> None:
    def one(**options: Any) -> type:  # noqa: ANN401
        @record(versions="0-4", flexible="2+")
        class One:
            number: Int32 = field(**options)  # type: ignore[misc]

        return One

    @record(versions="0-4", flexible="2+")
    class Two:
        number: Int16

    Two.__qualname__ = one().__qualname__
    texts = [
        declared(one(), 1),
        declared(one(), 2),
        declared(one(default=5), 2),
        declared(one(default=5, ignorable=True), 2),
        declared(one(default=9, since=3), 2),
        declared(one(default=9, since=3), 3),
        declared(one(default=0, tag=3), 3),
        declared(one(default=0, tag=4), 3),
        declared(Two, 2),
    ]
    assert len(set(texts)) == len(texts)
