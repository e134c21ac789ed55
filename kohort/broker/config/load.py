"""Puts the broker's configuration together from its four sources.

In order of precedence: ``--override name=value``, environment variables, the properties file, and
the defaults. All problems are collected and reported at once, each with the setting, where it was
given, and what is allowed.

Environment variables follow the rule of Kafka's own container image: ``KAFKA_`` and the name in
upper case with ``_`` for a dot (``__`` for an underscore, ``___`` for a dash), as in
``KAFKA_NUM_PARTITIONS``. Bitnami's prefix ``KAFKA_CFG_`` means the same. Our own
settings begin with ``KOHORT_``: ``KOHORT_METRICS_PORT`` is ``kohort.metrics.port``. The variables
that Kubernetes sets in every container for a Service called "kohort" or "kafka" are skipped.

One rule holds for the names from all sources: a setting of any release of Kafka is accepted. Any
other name is an error if it is a misspelt setting; if not, it has no effect and is warned about, as
in Kafka.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.config.broker import BrokerConfig, problems, warnings_about
from kohort.broker.config.ignored import why_ignored
from kohort.broker.config.listeners import (
    PREFIX,
    canonical,
    of_listener,
    own_problems,
    own_setting,
    why_without_effect,
)
from kohort.broker.config.names import misspelt
from kohort.broker.config.settings import ConfigType, InvalidValueError, Value, settings_of
from kohort.formats.properties import parse_properties

_OVERRIDE: Final = "--override"
_BITNAMIS: Final = "KAFKA_CFG_"
_READ_BY_OTHERS: Final = 0o004

_OF_THE_PIPELINE = frozenset(
    f"KOHORT_{name}"
    for name in (
        "BOOTSTRAP_SERVER",
        "CATALOG",
        "FORMAT",
        "IVY_SETTINGS",
        "JARS",
        "KAFKA_CONFIG",
        "LAKE",
        "REGISTRY",
        "REGISTRY_USER",
        "SPARK_LOG_LEVEL",
        "SPARK_MASTER",
    )
)
"""Read by `kohort pipeline`: a user who has set it for that may start a broker beside it."""


_OF_A_SERVICE = re.compile(
    r"_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)"
    r"(?:_(?:PROTO|PORT|ADDR))?)?)$"
)
"""How the variables end by which Kubernetes, and Docker's links, tell of a Service."""
_SERVICE_URL = re.compile(r"(?:tcp|udp|sctp)://")


_OF_OTHERS: Final = frozenset(
    {
        "advertised.listener",
        "auto.create.topics.enabled",
        "broker.ids",
        "fetch.min.bytes",
        "listener",
        "logs.dir",
        "node.ids",
        "node.ip",
        "super.user",
    }
)
"""Settings of clients, applications and images whose names resemble those of a broker."""
_KOHORTS: Final = "kohort."
_PLAIN: Final = re.compile(r"[\w.-]+", re.ASCII)
_SHOWN_MAX: Final = 40
"""Longest name without a dot that is shown: lines of a private key have no dot and are longer."""
_PEM_BEGIN: Final = "-----BEGIN "
_PEM_END: Final = "-----END"


class ConfigError(Exception):
    """The configuration cannot be used; the text lists every problem on a line of its own."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class GivenValue(NamedTuple):
    """One value from outside. Its text may be a secret, and is not part of the object's."""

    name: str
    text: str
    origin: str
    """Where it was given, for people: "server.properties:12", "--override", "environment X"."""

    def __repr__(self) -> str:
        return f"GivenValue({self.name!r}, {self.origin!r})"


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """The configuration, and where it came from."""

    config: BrokerConfig
    given: Mapping[str, GivenValue] = field(default_factory=dict)
    """Settings that were given, by name; the others have their defaults."""
    ignored: tuple[GivenValue, ...] = ()
    """Settings of Kafka that were given and change nothing here."""
    warnings: tuple[str, ...] = ()
    own: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of single listeners, as texts by their full names; some are secret."""
    given_own: Mapping[str, GivenValue] = field(default_factory=dict)
    """The same, with where each was given."""

    def of_listener(self, listener: str, mechanism: str = "") -> BrokerConfig:
        """What holds for a listener, or for one mechanism of it."""
        return of_listener(self.config, self.own, listener, mechanism)


def load(
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """Read all sources; raises ConfigError."""
    wrong: list[str] = []
    warnings: list[str] = []
    # Later entries win, so the sources come in rising precedence.
    sources = [
        *_from_file(file, wrong),
        *_from_environment(environment or {}),
        *_from_overrides(overrides, wrong),
    ]
    given: dict[str, GivenValue] = {}
    ignored: dict[str, GivenValue] = {}
    given_own: dict[str, GivenValue] = {}
    for one in sources:
        if one.name in settings_of(BrokerConfig):
            given[one.name] = one
        elif one.name.startswith(PREFIX):
            given_own[canonical(one.name)] = one
        elif why_ignored(one.name):
            ignored[one.name] = one
        else:
            _judge_unknown(one, wrong, warnings)
    warnings += (
        f"{_OVERRIDE} {name}: every user of this machine can read it in the list of processes; have"
        " it in the file or the environment"
        for name, one in (given | given_own).items()
        if one.origin == _OVERRIDE and _is_password(name)
    )
    if file is not None and _is_open_to_all(file):
        warnings += (
            f"{one.origin}: {name} can be read by every user of this machine, as all of the file:"
            " chmod 600"
            for name, one in (given | given_own).items()
            if one.origin.startswith(f"{file}:") and _is_password(name)
        )
    config = _build(given, wrong)
    if config is not None:
        warnings += warnings_about(config)
        for name, one in tuple(given_own.items()):
            reason = why_without_effect(config, name)
            if reason is not None:
                warnings.append(f"{one.origin}: {reason}")
                del given_own[name]
    own = {name: one.text for name, one in given_own.items()}
    if config is not None and not wrong:
        wrong += own_problems(config, own, {name: one.origin for name, one in given_own.items()})
    if wrong or config is None:
        raise ConfigError(wrong)
    return LoadedConfig(config, given, tuple(ignored.values()), tuple(warnings), own, given_own)


def _build(given: Mapping[str, GivenValue], wrong: list[str]) -> BrokerConfig | None:
    known = settings_of(BrokerConfig)
    values: dict[str, Value] = {}
    for one in given.values():
        try:
            values[known[one.name].attribute] = known[one.name].parse(one.text)
        except InvalidValueError as error:
            wrong.append(f"{one.origin}: {error}{known[one.name].what_is_allowed()}")
    # A file made for an older Kafka has only broker.id; Kafka 4 shows both as equal.
    if "node_id" not in values and isinstance(values.get("broker_id"), int):
        values["node_id"] = max(0, int(str(values["broker_id"])))
    if wrong:
        return None
    values.setdefault("broker_id", values.get("node_id", known["node.id"].default))
    config = BrokerConfig(**values)  # type: ignore[arg-type]
    wrong.extend(problems(config))
    return config


def _from_file(file: Path | None, wrong: list[str]) -> Iterator[GivenValue]:
    if file is None:
        return
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        wrong.append(f"{file}: cannot be read: {error}")
        return
    is_within_pem = False
    for entry in parse_properties(text):
        origin = f"{file}:{entry.line}"
        if is_within_pem:
            # Lines of a private key, perhaps: they are not told as settings that there are not.
            is_within_pem = not entry.name.startswith(_PEM_END)
        elif _PEM_BEGIN in entry.value and _PEM_END not in entry.value:
            is_within_pem = True
            wrong.append(
                f"{origin}: {entry.name} has the first line of its PEM alone; end each of its lines"
                " but the last with a backslash, or write it in one line"
            )
        else:
            yield GivenValue(entry.name, entry.value, origin)


def _from_overrides(overrides: Sequence[str], wrong: list[str]) -> Iterator[GivenValue]:
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            wrong.append(f"--override {override}: not of the form name=value")
        else:
            yield GivenValue(name.strip(), text, _OVERRIDE)


def _is_open_to_all(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & _READ_BY_OTHERS)
    except OSError:
        return False


def _is_password(name: str) -> bool:
    """Whether a setting's value opens something; `super.users` is sensitive, and opens nothing."""
    own = own_setting(name)
    known = settings_of(BrokerConfig).get(name) if own is None else own.setting
    return known is not None and known.type is ConfigType.PASSWORD and name != "super.users"


def _from_environment(environment: Mapping[str, str]) -> Iterator[GivenValue]:
    # A later entry wins: KAFKA_X over KAFKA_CFG_X.
    for variable in sorted(environment, key=lambda name: not name.startswith(_BITNAMIS)):
        name = _name_of(variable)
        if name is not None and not _is_of_a_service(variable, environment[variable]):
            yield GivenValue(name, environment[variable], f"environment variable {variable}")


def _name_of(variable: str) -> str | None:
    """Name of the setting that a variable stands for; None for variables of other programs."""
    if variable in _OF_THE_PIPELINE:
        return None
    if variable.startswith("KAFKA_"):
        name = variable.removeprefix(_BITNAMIS).removeprefix("KAFKA_")
    elif variable.startswith("KOHORT_"):
        name = variable
    else:
        return None
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _is_of_a_service(variable: str, text: str) -> bool:
    """Whether Kubernetes has set this variable, because of a Service with one of our beginnings.

    A Service "kohort-metrics" sets KOHORT_METRICS_PORT to a URL, and one "kohort" KOHORT_PORT.
    """
    found = _OF_A_SERVICE.search(variable)
    if found is None:
        return False
    return found[0] != "_PORT" or _SERVICE_URL.match(text) is not None


def _judge_unknown(given: GivenValue, wrong: list[str], warnings: list[str]) -> None:
    """Report a name that no release of Kafka has had: an error if it is a misspelt setting,
    otherwise a warning.
    """
    name = given.name
    meant = _meant_by(name)
    text = f"{given.origin}: there is no setting {_shown(name)}"
    hint = f"; did you mean {meant}?" if meant else ""
    if meant and name not in _OF_OTHERS:
        wrong.append(f"{text}{hint}")
    else:
        warnings.append(f"{text}: it has no effect{hint}")


def _meant_by(name: str) -> str | None:
    """The setting with an effect that a name is a misspelling of, or None."""
    known = [name for name, one in settings_of(BrokerConfig).items() if one.declared.honoured]
    if not name.startswith(_KOHORTS):
        return misspelt(name, known)
    # Without the prefix: its length would allow more edits.
    full_names = {one.removeprefix(_KOHORTS): one for one in known}
    meant = misspelt(name.removeprefix(_KOHORTS), full_names)
    return None if meant is None else full_names[meant]


def _shown(name: str) -> str:
    """A name as text for an error: shortened, escaped, and hidden if it may be part of a key."""
    if "." not in name and len(name) > _SHOWN_MAX:
        return f"with a name of {len(name)} characters and no dot"
    return name[: 2 * _SHOWN_MAX] if _PLAIN.fullmatch(name) else ascii(name[: 2 * _SHOWN_MAX])
