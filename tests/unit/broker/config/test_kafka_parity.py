"""The declarations agree with the definitions of Apache Kafka 4.4.0."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.ignored import ignored_names, ignored_settings
from kohort.broker.config.settings import Setting
from kohort.broker.config.topic import TOPIC_SETTINGS

OURS_DIFFER = {
    # Kafka has no default for these three; one broker needs no more than ours.
    "node.id": "1",
    "controller.listener.names": "",
    # Served to everybody without authentication, so not on every interface.
    "listeners": "PLAINTEXT://localhost:9092",
    # The lost SYN of a crowd of clients costs a second.
    "socket.listen.backlog.size": "1024",
    # What the system gives a client that sends much takes a batch of 1 MB in two reads, not eight.
    "socket.receive.buffer.bytes": "-1",
    # Kafka has no limit unless told: a heap is one.
    "queued.max.request.bytes": "268435456",
    # What OpenSSL reads.
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    # /tmp does not survive every restart of a machine.
    "log.dir": "data",
}
"""Defaults that differ from Kafka's on purpose."""

OUR_BOUNDS_DIFFER = {
    # There are no others; Kafka takes the name of any class.
    "authorizer.class.name": (
        "[, org.apache.kafka.metadata.authorizer.StandardAuthorizer, kohort]"
    ),
    # The same names, in any case.
    "group.consumer.migration.policy": "",
    # Kafka refuses the same values elsewhere than in its list.
    "log.roll.ms": "[1,...]",
    "log.roll.jitter.ms": "[0,...]",
    "log.cleaner.dedupe.buffer.size": "[1048576,...]",
}
"""Bounds that differ."""

OF_THE_AUTHORIZER = {"super.users", "allow.everyone.if.no.acl.found"}
"""Settings of Kafka's that its own list has not: a plug-in reads them."""


class Theirs(NamedTuple):
    kind: str
    name: str
    type: str
    default: str
    validator: str


def kafkas() -> Iterator[Theirs]:
    text = (Path(__file__).parent / "kafka_4_4_settings.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if not line.startswith("#"):
            yield Theirs(*(line.split("\t") + [""] * 5)[:5])


TOPIC = [theirs for theirs in kafkas() if theirs.kind == "T"]
BROKER = [theirs for theirs in kafkas() if theirs.kind == "B"]


def shown_default(setting: Setting) -> str:
    text = setting.format(setting.default)
    return "null" if text is None else text


def validator_of(setting: Setting) -> str:
    declared = setting.declared
    if declared.one_of:
        return f"[{', '.join(declared.one_of)}]"
    if declared.at_least is None and declared.at_most is None:
        return ""
    high = "" if declared.at_most is None else f",{declared.at_most}"
    alternative = "" if declared.or_exactly is None else f" or {declared.or_exactly}"
    return f"[{declared.at_least},...{high}]{alternative}"


def test_every_topic_config_of_kafka_is_declared_and_no_other() -> None:
    assert set(TOPIC_SETTINGS) == {theirs.name for theirs in TOPIC}


def test_every_topic_config_has_kafkas_type_default_and_bounds() -> None:
    for theirs in TOPIC:
        ours = TOPIC_SETTINGS[theirs.name]
        assert ours.type.name == theirs.type, theirs.name
        assert shown_default(ours) == theirs.default, theirs.name
        if "partitionId" not in theirs.validator:
            assert validator_of(ours) == theirs.validator, theirs.name


def test_every_broker_setting_of_kafka_is_either_declared_or_ignored_with_a_reason() -> None:
    theirs = {one.name for one in BROKER}
    declared = set(BROKER_SETTINGS)
    assert theirs - declared - set(ignored_names()) == set()
    assert declared & set(ignored_names()) == set()
    others = declared - theirs - OF_THE_AUTHORIZER
    assert {name for name in others if not name.startswith("kohort.")} == set()


def test_every_broker_setting_has_kafkas_type_default_and_bounds() -> None:
    for theirs in BROKER:
        if theirs.name not in BROKER_SETTINGS:
            continue
        ours = BROKER_SETTINGS[theirs.name]
        assert ours.type.name == theirs.type, theirs.name
        assert shown_default(ours) == OURS_DIFFER.get(theirs.name, theirs.default), theirs.name
        bounds = OUR_BOUNDS_DIFFER.get(theirs.name, theirs.validator)
        assert validator_of(ours) == bounds, theirs.name


def test_every_setting_without_effect_has_kafkas_type_and_default() -> None:
    unused = ignored_settings()
    for theirs in BROKER:
        if theirs.name not in unused:
            continue
        ours = unused[theirs.name]
        assert ours.type.name == theirs.type, theirs.name
        assert shown_default(ours) == theirs.default.replace("<none>", "null"), theirs.name
        if ours.declared.dynamic and theirs.validator:
            assert validator_of(ours) == theirs.validator, theirs.name


def test_every_topic_config_and_the_broker_setting_it_falls_back_to_have_one_default() -> None:
    for setting in TOPIC_SETTINGS.values():
        name = setting.declared.falls_back_to
        if name is None:
            continue
        source = BROKER_SETTINGS[name]
        assert source.type is setting.type, name
        assert source.declared.dynamic, name
        assert source.declared.honoured is setting.declared.honoured, name
        if not source.optional:
            assert source.default == setting.default, name
