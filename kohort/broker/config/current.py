"""The broker's current settings, and how DescribeConfigs reports them.

A setting has up to four values, in order of precedence: this broker's dynamic value, the
cluster-wide dynamic default (KIP-226), the static value, and the built-in default.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache, cached_property
from typing import Final, NamedTuple, TypeAlias

from kohort.broker.config.broker import BrokerConfig, problems
from kohort.broker.config.group import GROUP_CONFIGS, broker_name, group_setting, group_value
from kohort.broker.config.ignored import ignored_settings
from kohort.broker.config.listeners import (
    PER_BROKER,
    PREFIX,
    of_listener,
    own_problems,
    own_setting,
)
from kohort.broker.config.load import LoadedConfig
from kohort.broker.config.settings import (
    HIDDEN,
    ConfigType,
    InvalidValueError,
    Setting,
    Value,
    settings_of,
)
from kohort.broker.config.topic import TOPIC_SETTINGS, broker_default, parse_overrides

BROKER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerConfig)

SET_FOR_ALL: Final = ("min.insync.replicas",)
"""Settings that always have a cluster-wide default, initially the static value (KIP-966)."""

KEPT: Final = ("kohort_users_disabled", "kohort_users_disconnected")
"""Attributes whose dynamic values stay in force even if the dynamic settings are contradictory: a
mistake in another setting must not enable a disabled user."""

OwnCheck: TypeAlias = Callable[[BrokerConfig, Mapping[str, str]], None]
"""Checks a new config, and the `listener.name.*` settings by full name. Raises ValueError."""

logger = logging.getLogger(__name__)


class ConfigSource(IntEnum):
    """The sources of values; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class Synonym(NamedTuple):
    """A value of a config from one source. Lists of synonyms are in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A config as DescribeConfigs reports it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    type: ConfigType
    synonyms: tuple[Synonym, ...]
    documentation: str

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must be hidden."""
        return self.type is ConfigType.PASSWORD


class CurrentConfig:
    """The effective settings. `replace` changes them, after the caller has stored the change."""

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        for_this_broker: Mapping[str, str] | None = None,
        for_all_brokers: Mapping[str, str] | None = None,
        for_groups: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.loaded = loaded
        self._for_this = dict(for_this_broker or {})
        self._for_all = self._always_set() | dict(for_all_brokers or {})
        self.groups = dict(for_groups or {})
        """Configs of groups that have any, by group id. Code that stores a change updates them."""
        self.config = self._combined(self._for_this, self._for_all)
        """The effective settings; a new object after every change."""
        self.ports: dict[str, int] = {}
        """Open HTTP ports by setting name; if a setting is 0, the system has chosen the port."""
        self._listeners: list[Callable[[], None]] = []
        self._own_checks: list[OwnCheck] = []

    @property
    def broker(self) -> str:
        """The broker's id, as a resource name."""
        return str(self.loaded.config.node_id)

    def set_at_run_time(self, broker: str) -> dict[str, str]:
        """Return this broker's dynamic configs; if `broker` is empty, the cluster-wide defaults."""
        return dict(self._for_all if broker == "" else self._for_this)

    def check(self, broker: str, configs: Mapping[str, str]) -> None:
        """Raise ValueError if the dynamic configs of `broker` (empty: of all) would be invalid."""
        config = self._candidate(broker, configs, strict=True)
        own = self._own(configs if broker else self._for_this)
        before = [self.value_of(name) for name in PER_BROKER]
        after = [getattr(config, BROKER_SETTINGS[name].attribute) for name in PER_BROKER]
        if own == self.own and before == after:
            return
        wrong = own_problems(config, own)
        if wrong:
            raise ValueError("; ".join(wrong))
        for check in self._own_checks:
            check(config, own)

    def replace(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace the dynamic configs with ones accepted by `check`."""
        self.config = self._candidate(broker, configs, strict=False)
        if broker == "":
            self._for_all = self._always_set() | dict(configs)
        else:
            self._for_this = dict(configs)
        for listener in self._listeners:
            listener()

    @property
    def own(self) -> Mapping[str, str]:
        """The effective `listener.name.*` settings, unparsed, by full name."""
        return self._own(self._for_this)

    def of_listener(
        self, listener: str, mechanism: str = "", own: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """Return the config of a listener, or of one of its SASL mechanisms. `own`: the
        `listener.name.*` settings to use, by full name; by default the effective ones.
        """
        return of_listener(self.config, self.own if own is None else own, listener, mechanism)

    def add_own_check(self, check: OwnCheck) -> None:
        """Add a check of listeners' settings, which raises ValueError if they are invalid."""
        self._own_checks.append(check)

    def _own(self, this: Mapping[str, str]) -> dict[str, str]:
        changed = {name: text for name, text in this.items() if name.startswith(PREFIX)}
        return {**self.loaded.own, **changed}

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def value_of(self, name: str) -> Value:
        """Return the effective value of a broker setting, even of one that is ignored here."""
        known = BROKER_SETTINGS.get(name)
        if known is not None:
            value: Value = getattr(self.config, known.attribute)
            return value
        synonyms = self._synonyms(name)
        text = synonyms[0].value if synonyms else None
        return None if text is None else known_setting(name).parse(text)

    def _always_set(self) -> dict[str, str]:
        known = (BROKER_SETTINGS[name] for name in SET_FOR_ALL)
        config = self.loaded.config
        return {
            setting.name: str(setting.format(getattr(config, setting.attribute)))
            for setting in known
        }

    def _candidate(self, broker: str, configs: Mapping[str, str], *, strict: bool) -> BrokerConfig:
        if broker == "":
            return self._combined(self._for_this, configs, strict=strict)
        return self._combined(configs, self._for_all, strict=strict)

    def _combined(
        self, this: Mapping[str, str], everyone: Mapping[str, str], *, strict: bool = False
    ) -> BrokerConfig:
        values: dict[str, Value] = {}
        for name, text in {**everyone, **this}.items():
            if name.startswith(PREFIX):
                continue
            try:
                known = known_setting(name)
                value = known.parse(text)
                if name in BROKER_SETTINGS:
                    values[known.attribute] = value
            except ValueError as error:
                if strict:
                    raise
                # Another release may have stored this value; the broker starts without it.
                setting = all_broker_settings().get(name)
                is_secret = setting is not None and setting.type is ConfigType.PASSWORD
                shown = HIDDEN if is_secret else text
                logger.warning("Ignoring invalid dynamic config %s=%s: %s", name, shown, error)
        config = dataclasses.replace(self.loaded.config, **values)  # type: ignore[arg-type]
        wrong = problems(config)
        if not wrong:
            return config
        if strict:
            raise ValueError("; ".join(wrong))
        logger.warning("Ignoring contradictory dynamic configs: %s", "; ".join(wrong))
        kept = {name: values[name] for name in KEPT if name in values}
        return dataclasses.replace(self.loaded.config, **kept)  # type: ignore[arg-type]

    def describe_broker(self) -> Iterator[ConfigEntry]:
        """Yield all settings of this broker except internal ones; includes those without effect."""
        for known in BROKER_SETTINGS.values():
            if not known.declared.internal:
                value = self.ports.get(known.name, getattr(self.config, known.attribute))
                text = known.format(value)
                yield _entry(
                    known,
                    text,
                    self._synonyms(known.name),
                    read_only=not known.declared.dynamic,
                )
        changed = self._for_this.keys() | self._for_all.keys() | self._ignored.keys()
        for name, known in ignored_settings().items():
            if name in changed:
                synonyms = self._synonyms(name)
                text = synonyms[0].value if synonyms else None
                yield _entry(known, text, synonyms, read_only=not known.declared.dynamic)
            elif not known.declared.internal:
                yield _untouched(name)

        for name, text in self.own.items():
            own = own_setting(name)
            if own is not None:
                # A listener's setting falls back to the broker's.
                synonyms = self._synonyms(name, own.setting.name)
                entry = _entry(own.setting, text, synonyms, read_only=not own.is_dynamic)
                yield entry._replace(name=name)

    def describe_all_brokers(self) -> Iterator[ConfigEntry]:
        """Yield the cluster-wide dynamic defaults."""
        for name, text in self._for_all.items():
            known = all_broker_settings().get(name)
            if known is not None:
                synonyms = (Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
                yield _entry(known, text, synonyms, read_only=False)

    def describe_topic(self, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
        values = parse_overrides(overrides)
        for name, known in TOPIC_SETTINGS.items():
            if known.declared.internal and name not in values:
                continue
            fallback = known.declared.falls_back_to
            synonyms = self._synonyms(fallback) if fallback else ()
            if name in values:
                value = values[name]
                own = Synonym(name, known.format(value), ConfigSource.TOPIC)
                synonyms = (own, *synonyms)
            else:
                value = broker_default(known, self.config)
            yield _entry(known, known.format(value), synonyms, read_only=False)

    def describe_group(self, group_id: str) -> Iterator[ConfigEntry]:
        """Yield all configs of a group, which need not exist."""
        configs = self.groups.get(group_id, {})
        for name in GROUP_CONFIGS:
            known = group_setting(name)
            text = known.format(group_value(configs, name, self.config))
            overridden = broker_name(name)
            if overridden is not None:
                synonyms = self._synonyms(overridden)
            else:
                synonyms = (Synonym(name, known.format(known.default), ConfigSource.DEFAULT),)
            if name in configs:
                synonyms = (Synonym(name, text, ConfigSource.GROUP), *synonyms)
            elif known.declared.internal:
                continue
            yield _entry(known, text, synonyms, read_only=False)

    def _synonyms(self, name: str, *fallbacks: str) -> tuple[Synonym, ...]:
        """Return the values of a setting and of its fallbacks; the first is in force.

        As in Kafka, values before the first one with the exact ``name`` are left out, so
        log.retention.ms has no synonyms if only log.retention.hours is set.
        """
        chain = (name, *fallbacks) if fallbacks else _chains().get(name, (name,))
        synonyms = [
            Synonym(given, text, source)
            for source, given, text in self._given(chain)
            if text is not None
        ]
        names = [synonym.name for synonym in synonyms]
        return tuple(synonyms[names.index(name) :]) if name in names else ()

    def _given(self, names: Iterable[str]) -> Iterator[tuple[ConfigSource, str, str | None]]:
        names = list(names)
        for name in names:
            yield ConfigSource.DYNAMIC_BROKER, name, self._for_this.get(name)
        for name in names:
            yield ConfigSource.DYNAMIC_DEFAULT_BROKER, name, self._for_all.get(name)
        for name in names:
            if name in self.loaded.given:
                known = BROKER_SETTINGS[name]
                value = getattr(self.loaded.config, known.attribute)
                yield ConfigSource.STATIC_BROKER, name, known.format(value)
            elif name in self._ignored:
                yield ConfigSource.STATIC_BROKER, name, self._ignored[name]
            elif name in self.loaded.own:
                yield ConfigSource.STATIC_BROKER, name, self.loaded.own[name]
        for name in names:
            if name.startswith(PREFIX):
                continue
            known = known_setting(name)
            yield ConfigSource.DEFAULT, name, known.format(known.default)

    @cached_property
    def _ignored(self) -> dict[str, str | None]:
        """Static settings without effect, with their values as Kafka would format them."""
        return {given.name: _formatted(given.name, given.text) for given in self.loaded.ignored}


@cache
def all_broker_settings() -> Mapping[str, Setting]:
    """Return all broker settings by name, including Kafka's that have no effect here."""
    return {**ignored_settings(), **BROKER_SETTINGS}


def known_setting(name: str) -> Setting:
    """Return a broker setting, even if it has no effect here. Raises InvalidValueError."""
    # Settings with an effect first, so that a start seldom has to read ignored.txt.
    known = BROKER_SETTINGS.get(name) or all_broker_settings().get(name)
    if known is None:
        raise InvalidValueError(name, "", "unknown setting")
    return known


def _formatted(name: str, text: str) -> str | None:
    known = ignored_settings().get(name)
    try:
        return text if known is None else known.format(known.parse(text))
    except ValueError:
        # Invalid values of settings without an effect are accepted, and shown as they were given.
        return text


def _entry(
    known: Setting, value: str | None, synonyms: tuple[Synonym, ...], *, read_only: bool
) -> ConfigEntry:
    return ConfigEntry(
        name=known.name,
        value=value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=read_only,
        type=known.type,
        synonyms=synonyms,
        documentation=documentation_of(known),
    )


def documentation_of(known: Setting) -> str:
    """Return the description of a setting, with a remark if it has no effect."""
    if known.declared.honoured:
        return known.declared.doc
    return f"Accepted and stored, without effect here. {known.declared.doc}"


@cache
def _untouched(name: str) -> ConfigEntry:
    """Return an ignored setting with its default value; cached, because there are hundreds."""
    known = known_setting(name)
    text = known.format(known.default)
    synonyms = () if text is None else (Synonym(name, text, ConfigSource.DEFAULT),)
    return _entry(known, text, synonyms, read_only=not known.declared.dynamic)


@cache
def _chains() -> dict[str, tuple[str, ...]]:
    """Return for each broker setting all names that can set its value, by precedence."""
    following = {
        name: known.declared.falls_back_to
        for name, known in BROKER_SETTINGS.items()
        if known.declared.falls_back_to
    }
    chains: dict[str, tuple[str, ...]] = {name: (name,) for name in BROKER_SETTINGS}
    for first in following.keys() - set(following.values()):
        chain = [first]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        chains.update(dict.fromkeys(chain, tuple(chain)))
    return chains
