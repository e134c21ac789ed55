"""The configuration is put together from its sources, and every mistake is named."""

import re
from pathlib import Path

import pytest

from kohort.broker.config import BrokerConfig, ConfigError, load
from kohort.broker.config.broker import effective_ms


def refusal(**sources: object) -> str:
    with pytest.raises(ConfigError) as refused:
        load(**sources)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "server.properties"


def test_without_sources_everything_has_its_default() -> None:
    loaded = load()
    assert loaded.config == BrokerConfig(broker_id=1)
    assert loaded.given == {}


def test_an_override_beats_the_environment_which_beats_the_file(file: Path) -> None:
    file.write_text("num.partitions=2\nlog.retention.hours=3\nlog.segment.bytes=2000000\n")
    loaded = load(
        file=file,
        overrides=["num.partitions=4"],
        environment={"KAFKA_NUM_PARTITIONS": "3", "KAFKA_LOG_RETENTION_HOURS": "4"},
    )
    assert loaded.config.num_partitions == 4
    assert loaded.config.log_retention_hours == 4
    assert loaded.config.log_segment_bytes == 2_000_000
    origins = {name: given.origin for name, given in loaded.given.items()}
    assert origins == {
        "num.partitions": "--override",
        "log.retention.hours": "environment variable KAFKA_LOG_RETENTION_HOURS",
        "log.segment.bytes": f"{file}:3",
    }


def test_an_unknown_name_is_refused_with_its_place_and_near_names(file: Path) -> None:
    file.write_text("node.id=1\n\nnum.partition=2\n")
    text = refusal(file=file)
    assert text == f"{file}:3: unknown setting num.partition; did you mean num.partitions?"


def test_a_value_out_of_range_is_refused_with_what_is_allowed() -> None:
    assert refusal(overrides=["num.partitions=0"]) == (
        "--override: Invalid value 0 for configuration num.partitions: Value must be at least 1"
        " (allowed: a whole number of at least 1)"
    )


def test_all_mistakes_are_reported_together(file: Path) -> None:
    file.write_text("num.partitions=x\nnode.di=1\n")
    lines = refusal(file=file, overrides=["broken", "log.dirs="]).splitlines()
    assert [line.split(":")[0] for line in lines].count(str(file)) == 2
    assert any(line.startswith("--override broken: not of the form") for line in lines)


KUBERNETES = {
    "SERVICE_HOST": "10.96.12.7",
    "SERVICE_PORT": "9092",
    "SERVICE_PORT_CLIENTS": "9092",
    "PORT": "tcp://10.96.12.7:9092",
    "PORT_9092_TCP": "tcp://10.96.12.7:9092",
    "PORT_9092_TCP_PROTO": "tcp",
    "PORT_9092_TCP_PORT": "9092",
    "PORT_9092_TCP_ADDR": "10.96.12.7",
}
"""What the kubelet tells every container about a Service, after the Service's name."""


@pytest.mark.parametrize("service", ["KOHORT", "KAFKA", "KOHORT_METRICS", "KAFKA_NUM_PARTITIONS"])
def test_what_kubernetes_tells_of_a_service_is_skipped(service: str) -> None:
    loaded = load(environment={f"{service}_{end}": text for end, text in KUBERNETES.items()})
    assert loaded.config == BrokerConfig(broker_id=1)
    assert loaded.given == {}
    assert loaded.warnings == ()


def test_a_variable_that_resembles_no_setting_of_ours_is_named_in_a_warning() -> None:
    loaded = load(environment={"KOHORT_IMAGE_TAG": "1.2", "KOHORT_PORT": "9092"})
    assert loaded.given == {}
    assert [warning.split()[2] for warning in loaded.warnings] == [
        "KOHORT_IMAGE_TAG:",
        "KOHORT_PORT:",
    ]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("KOHORT_METRIC_PORT", "kohort.metrics.port"),
        ("KOHORT_LOG_LEVLE", "kohort.log.level"),
        ("KOHORT_NUM_PARTITIONS", "num.partitions"),
    ],
)
def test_a_variable_near_to_a_setting_stops_the_start_and_names_it(
    variable: str, meant: str
) -> None:
    assert meant in refusal(environment={variable: "3"})


def test_a_setting_of_kafka_that_changes_nothing_is_accepted_and_named(file: Path) -> None:
    file.write_text("num.io.threads=8\nzookeeper.connect=localhost:2181\n")
    loaded = load(file=file, environment={"KAFKA_PROCESS_ROLES": "broker,controller"})
    assert {given.name for given in loaded.ignored} == {
        "num.io.threads",
        "zookeeper.connect",
        "process.roles",
    }


NAMES_BEFORE_4_4 = [
    line
    for line in (Path(__file__).parent / "names_before_4_4.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]


def test_a_setting_that_an_older_kafka_had_is_accepted_from_every_source(file: Path) -> None:
    assert len(NAMES_BEFORE_4_4) > 60
    file.write_text("".join(f"{name}=x\n" for name in NAMES_BEFORE_4_4))
    overrides = [f"{name}=x" for name in NAMES_BEFORE_4_4]
    for loaded in load(file=file), load(overrides=overrides):
        assert [given.name for given in loaded.ignored] == NAMES_BEFORE_4_4
        assert loaded.warnings == ()
    variables = {f"KAFKA_{name.upper().replace('.', '_')}": "x" for name in NAMES_BEFORE_4_4}
    assert len(load(environment=variables).ignored) == len(NAMES_BEFORE_4_4) - 1
    """All but zookeeper.clientCnxnSocket, which no variable can spell."""


@pytest.mark.parametrize(
    "name",
    [
        "confluent.license.topic.replication.factor",
        "cruise.control.metrics.topic",
        "nonsense",
        "bootstrap.servers",
        "fetch.min.bytes",
        "broker",
        "broker.ids",
        "node.ip",
        "[section]",
        "kohort.image.tag",
    ],
)
def test_an_unknown_name_is_a_warning(file: Path, name: str) -> None:
    file.write_text(f"{name}=horse\n")
    for loaded in load(file=file), load(overrides=[f"{name}=horse"]):
        (warning,) = loaded.warnings
        assert name in warning
        assert "horse" not in warning
        assert loaded.given == {}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("log.retnetion.huors", "log.retention.hours"),
        ("num.partitions\\u00a0", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("authoriser.class.name", "authorizer.class.name"),
        ("advertised_listeners", "advertised.listeners"),
        ("log.dri", "log.dir"),
        ("kohort.metric.port", "kohort.metrics.port"),
    ],
)
def test_a_misspelt_setting_is_an_error_that_shows_it(file: Path, name: str, meant: str) -> None:
    file.write_text(f"{name}=1\n")
    text = refusal(file=file)
    assert f"did you mean {meant}?" in text
    assert name.replace("\\u00a0", r"\xa0") in text


@pytest.mark.parametrize(
    "override",
    [
        "group.min.session.timeout.ms=0",
        "group.max.session.timeout.ms=1",
        "group.initial.rebalance.delay.ms=-1",
        "offset.metadata.max.bytes=-1",
        "queued.max.request.bytes=-2",
        "socket.send.buffer.bytes=-2",
        "socket.receive.buffer.bytes=-2",
        "sasl.server.max.receive.size=-1",
        "offsets.topic.segment.bytes=1",
        "transaction.state.log.segment.bytes=1",
        "transaction.two.phase.commit.enable=true",
        "log.retention.ms=-3",
        "log.dirs=a,b",
    ],
)
def test_a_broker_starts_with_the_values_that_kafka_starts_with(override: str) -> None:
    load(overrides=[override])


def test_an_authorizer_that_there_is_not_is_refused() -> None:
    text = refusal(overrides=["authorizer.class.name=org.example.Authorizer"])
    assert "String must be one of: , org.apache.kafka.metadata.authorizer" in text


@pytest.mark.parametrize(
    ("users", "why"),
    [
        ("admin", "principal 1 has no type, as in User:name"),
        ("User:a; user:bob", "principal 2 matches no user: the type is case-sensitive"),
        ("User:a,User:bob", "principal 1 contains a comma followed by User:"),
        ("User:CN=a,OU=b, User:bob", "principal 1 contains a comma"),
    ],
)
def test_super_users_that_match_nobody_are_warned_about_without_their_names(
    users: str, why: str
) -> None:
    (warning,) = load(overrides=[f"super.users={users}"]).warnings
    assert why in warning
    assert "bob" not in warning


def test_an_authorizer_needs_super_users_with_a_type() -> None:
    text = refusal(overrides=["authorizer.class.name=kohort", "super.users=admin"])
    assert text == "super.users: principal 1 has no type, as in User:name"


def test_a_file_of_windows_is_read(file: Path) -> None:
    file.write_bytes(
        b"\xef\xbb\xbfnode.id=7\r\nlisteners=PLAINTEXT://localhost:1,\\\r\n A://h:2\r\n"
        b"listener.security.protocol.map=A:SSL,PLAINTEXT:PLAINTEXT\r\n"
        b"ssl.keystore.location=a.pem\r\n"
    )
    config = load(file=file).config
    assert config.node_id == 7
    assert config.listeners == ("PLAINTEXT://localhost:1", "A://h:2")
    assert config.ssl_keystore_location == "a.pem"


KEY = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgiutG2VSAOCK7sXW1"


@pytest.mark.parametrize("last", ["short+/=", "W10="])
def test_a_private_key_whose_lines_are_not_continued_is_told_and_not_repeated(
    file: Path, last: str
) -> None:
    pem = f"-----BEGIN PRIVATE KEY-----\n{KEY}\n{last}\n-----END PRIVATE KEY-----"
    file.write_text(f"node.id=1\nssl.keystore.key={pem}\nnum.partition=3\n")
    told, other = refusal(file=file).splitlines()
    assert told.startswith(f"{file}:2: ssl.keystore.key has only the first line of its PEM; end")
    assert other.startswith(f"{file}:6: unknown setting num.partition; did you mean")
    continued = pem.replace("\n", "\\n\\\n")
    file.write_text(f"node.id=1\nssl.keystore.key={continued}\n")
    assert load(file=file).config.ssl_keystore_key == pem


def test_a_line_of_a_key_by_itself_is_not_repeated(file: Path) -> None:
    file.write_text(f"node.id=1\n{KEY}\n")
    (warning,) = load(file=file).warnings
    assert warning.startswith(f"{file}:2: unknown setting with a name of 64 characters")
    assert KEY[:10] not in warning


def test_a_file_that_cannot_be_read_is_named(file: Path) -> None:
    assert f"{file}: cannot be read" in refusal(file=file)
    file.write_bytes(b"a=\xff\xfe")
    assert f"{file}: cannot be read" in refusal(file=file)


def test_the_older_name_of_the_node_id_is_enough() -> None:
    config = load(overrides=["broker.id=7"]).config
    assert (config.node_id, config.broker_id) == (7, 7)
    config = load(overrides=["node.id=8"]).config
    assert (config.node_id, config.broker_id) == (8, 8)
    assert "must be equal" in refusal(overrides=["broker.id=7", "node.id=8"])


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["log.dirs="], "log.dirs must name a directory"),
        (["log.dir="], "log.dir"),
        (["log.retention.ms=0"], "log.retention.ms=0"),
        (["log.retention.hours=0"], "log.retention.hours=0"),
        (
            ["log.cleaner.min.compaction.lag.ms=9", "log.cleaner.max.compaction.lag.ms=8"],
            "log.cleaner.min.compaction.lag.ms=9",
        ),
        (["listeners="], "listeners"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(overrides: list[str], named: str) -> None:
    assert named in refusal(overrides=overrides)


def test_units_are_converted_where_a_setting_falls_back_to_another() -> None:
    assert effective_ms(BrokerConfig(), "log.retention.ms") == 604_800_000
    assert effective_ms(BrokerConfig(log_retention_minutes=2), "log.retention.ms") == 120_000
    both = BrokerConfig(log_retention_minutes=2, log_retention_ms=5)
    assert effective_ms(both, "log.retention.ms") == 5
    assert effective_ms(BrokerConfig(log_retention_hours=-1), "log.retention.ms") == -1
    assert effective_ms(BrokerConfig(log_retention_ms=-3), "log.retention.ms") == -1


def test_what_is_set_for_the_pipeline_is_no_misspelt_setting_of_the_broker() -> None:
    written = (Path(__file__).parents[4] / "docs" / "pipeline.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(KOHORT_[A-Z_]+)`", written))
    assert len(named) > 5
    loaded = load(environment=dict.fromkeys(named, "somewhere"))
    assert not loaded.warnings


def test_a_password_on_the_command_line_is_warned_of(file: Path) -> None:
    login = "PlainLoginModule required user_a=horse;"
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    secrets = ["ssl.key.password=horse", f"{name}={login}"]
    listeners = ["listeners=SASL_PLAINTEXT://localhost:1", "sasl.enabled.mechanisms=PLAIN"]
    file.write_text("\n".join([*listeners, *secrets]))
    file.chmod(0o640)
    assert not load(file=file, overrides=["super.users=User:a"]).warnings
    warnings = load(overrides=[*listeners, *secrets]).warnings
    assert [one.partition(":")[0] for one in warnings] == [
        "--override ssl.key.password",
        f"--override {name}",
    ]
    assert "horse" not in "".join(warnings)


def test_a_password_in_a_file_that_everybody_may_read_is_warned_of(file: Path) -> None:
    file.write_text("super.users=User:a\nlog.dirs=/data\nssl.key.password=horse\n")
    file.chmod(0o644)
    (warning,) = load(file=file).warnings
    assert warning.startswith(f"{file}:3: ssl.key.password can be read by every user")
    assert "horse" not in warning
    file.chmod(0o600)
    assert not load(file=file).warnings
