"""The broker's settings as they are now, and how DescribeConfigs explains them.

What was given at the start stays; what is set at run time lies over it, for this broker before what
is set for all brokers (KIP-226). Each setting thereby has up to four values; the first counts.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from typing import Final, NamedTuple, TypeAlias

from kohort.broker.config.broker import BrokerConfig, problems
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
from kohort.broker.config.unused import unused_settings

BROKER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerConfig)

SET_FOR_ALL: Final = ("min.insync.replicas",)
"""Always set for all brokers, as by Kafka 4 (KIP-966): first to what was given at the start."""

KEPT: Final = ("kohort_users_disabled", "kohort_users_disconnected")
"""Attributes that stay in force even if other settings of run time are wrong: a mistake in another
setting must not let a disabled user in again."""

OwnCheck: TypeAlias = Callable[[BrokerConfig, Mapping[str, str]], None]
"""A check of what would count, and of settings of single listeners, as texts by full names."""

logger = logging.getLogger(__name__)


class ConfigSource(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6


class Synonym(NamedTuple):
    """One of the values that a config could have, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One config as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    type: ConfigType
    synonyms: tuple[Synonym, ...]
    documentation: str

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is not to be told."""
        return self.type is ConfigType.PASSWORD


class CurrentConfig:
    """The settings that count now; changed by the code that has stored the change."""

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        for_this_broker: Mapping[str, str] | None = None,
        for_all_brokers: Mapping[str, str] | None = None,
    ) -> None:
        self.loaded = loaded
        self._for_this = dict(for_this_broker or {})
        self._for_all = self._always_set() | dict(for_all_brokers or {})
        self.config = self._combined(self._for_this, self._for_all)
        """The values; a new object after every change."""
        self._listeners: list[Callable[[], None]] = []
        self._own_checks: list[OwnCheck] = []

    @property
    def broker(self) -> str:
        """The broker's id, as a resource name."""
        return str(self.loaded.config.node_id)

    def set_at_run_time(self, broker: str) -> dict[str, str]:
        """What is set for this broker's id, or with an empty id for all."""
        return dict(self._for_all if broker == "" else self._for_this)

    def check(self, broker: str, configs: Mapping[str, str]) -> None:
        """Raise ValueError if these cannot be what is set for this broker's id, or for all."""
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
        """Replace what is set by configs that have been checked."""
        self.config = self._candidate(broker, configs, strict=False)
        if broker == "":
            self._for_all = self._always_set() | dict(configs)
        else:
            self._for_this = dict(configs)
        for listener in self._listeners:
            listener()

    @property
    def own(self) -> Mapping[str, str]:
        """Settings of single listeners that count now, as texts by their full names."""
        return self._own(self._for_this)

    def of_listener(
        self, listener: str, mechanism: str = "", own: Mapping[str, str] | None = None
    ) -> BrokerConfig:
        """What holds now for a listener, or for one mechanism of it; or would hold with `own`."""
        return of_listener(self.config, self.own if own is None else own, listener, mechanism)

    def add_own_check(self, check: OwnCheck) -> None:
        """Have `check` raise ValueError for settings of listeners that cannot be what counts."""
        self._own_checks.append(check)

    def _own(self, this: Mapping[str, str]) -> dict[str, str]:
        changed = {name: text for name, text in this.items() if name.startswith(PREFIX)}
        return {**self.loaded.own, **changed}

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call this after every change from now on."""
        self._listeners.append(listener)

    def value_of(self, name: str) -> Value:
        """What counts now of a broker setting, of one that changes nothing here, too."""
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
        return {one.name: str(one.format(getattr(config, one.attribute))) for one in known}

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
                # Stored by another release, perhaps; better without it than no broker.
                shown = HIDDEN if _is_secret(name) else text
                logger.warning("%s=%s, set at run time, is not used: %s", name, shown, error)
        config = dataclasses.replace(self.loaded.config, **values)  # type: ignore[arg-type]
        wrong = problems(config)
        if not wrong:
            return config
        if strict:
            raise ValueError("; ".join(wrong))
        logger.warning("what was set at run time is not used: %s", "; ".join(wrong))
        kept = {name: values[name] for name in KEPT if name in values}
        return dataclasses.replace(self.loaded.config, **kept)  # type: ignore[arg-type]

    def describe_broker(self) -> Iterator[ConfigEntry]:
        """Every setting of this broker that is not internal, those without effect included."""
        for known in BROKER_SETTINGS.values():
            if not known.declared.internal:
                text = known.format(getattr(self.config, known.attribute))
                yield _entry(
                    known,
                    text,
                    self._synonyms(known.name),
                    read_only=not known.declared.dynamic,
                )
        changed = self._for_this.keys() | self._for_all.keys() | self._ignored.keys()
        for name, unused in unused_settings().items():
            known = unused.setting
            if name in changed:
                synonyms = self._synonyms(name)
                text = synonyms[0].value if synonyms else None
                yield _entry(known, text, synonyms, read_only=not known.declared.dynamic)
            elif not known.declared.internal:
                yield _untouched(name)

        for name, text in self.own.items():
            found = own_setting(name)
            if found is not None:
                # For listeners without one of their own, the bare setting counts.
                synonyms = self._synonyms(name, found.setting.name)
                entry = _entry(found.setting, text, synonyms, read_only=not found.is_dynamic)
                yield dataclasses.replace(entry, name=name)

    def describe_all_brokers(self) -> Iterator[ConfigEntry]:
        """What is set at run time for all brokers."""
        for name, text in self._for_all.items():
            known = BROKER_SETTINGS.get(name) or unused_setting(name)
            if known is not None:
                synonyms = (Synonym(name, text, ConfigSource.DYNAMIC_DEFAULT_BROKER),)
                yield _entry(known, text, synonyms, read_only=False)

    def describe_topic(self, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
        """Every config of a topic on which ``overrides`` are set."""
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

    def _synonyms(self, name: str, *fallbacks: str) -> tuple[Synonym, ...]:
        """Values of a setting and of those it falls back to, first that which counts.

        As in Kafka: what comes before the first value given under ``name`` itself is left out, so
        log.retention.ms has no synonyms where only log.retention.hours is set.
        """
        chain = (name, *fallbacks) if fallbacks else _chains().get(name, (name,))
        found = [
            Synonym(one, text, source)
            for source, one, text in self._given(chain)
            if text is not None
        ]
        own = next((place for place, one in enumerate(found) if one.name == name), len(found))
        return tuple(found[own:])

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
        """What was given at the start and has no effect, as Kafka would show it."""
        return {one.name: _shown(one.name, one.text) for one in self.loaded.ignored}


def known_setting(name: str) -> Setting:
    """A broker setting, with an effect here or without; raises InvalidValueError."""
    known = BROKER_SETTINGS.get(name) or unused_setting(name)
    if known is None:
        raise InvalidValueError(name, "", "there is no such setting")
    return known


@cache
def all_broker_settings() -> Mapping[str, Setting]:
    """Every broker setting by name, with an effect here or without."""
    unused = {name: one.setting for name, one in unused_settings().items()}
    return {**unused, **BROKER_SETTINGS}


def unused_setting(name: str) -> Setting | None:
    """A broker setting that has no effect here; None for another name."""
    unused = unused_settings().get(name)
    return None if unused is None else unused.setting


def _is_secret(name: str) -> bool:
    known = BROKER_SETTINGS.get(name) or unused_setting(name)
    return known is not None and known.type is ConfigType.PASSWORD


def _shown(name: str, text: str) -> str | None:
    known = unused_setting(name)
    try:
        return text if known is None else known.format(known.parse(text))
    except ValueError:
        # Taken at the start, as it changes nothing.
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
    """Help for a setting, which says so where it changes nothing."""
    if known.declared.honoured:
        return known.declared.doc
    return f"Accepted and stored, without effect here. {known.declared.doc}"


@cache
def _untouched(name: str) -> ConfigEntry:
    """An unused setting that has its default, as most have: hundreds, told at every asking."""
    known = known_setting(name)
    text = known.format(known.default)
    synonyms = () if text is None else (Synonym(name, text, ConfigSource.DEFAULT),)
    return _entry(known, text, synonyms, read_only=not known.declared.dynamic)


@cache
def _chains() -> dict[str, tuple[str, ...]]:
    """All settings that give the value of each broker setting, in order of precedence."""
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
