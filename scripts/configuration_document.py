"""Generates docs/configuration.md from the declarations; `make docs` writes it."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.ignored import ignored_names, ignored_prefixes, ignored_settings
from kohort.broker.config.settings import Setting, settings_of
from kohort.broker.config.share import ShareGroupConfigs
from kohort.broker.config.topic import TOPIC_SETTINGS

PATH: Final = Path("docs/configuration.md")

_HEAD: Final = """\
<!-- Made from the declarations in broker/config by `make docs`; edit those. -->

# Configuration

Settings have Apache Kafka's names; those that Kafka does not have begin with `kohort.`. The value
comes from the first source that contains the setting:

1. `--override name=value` on the command line, repeatable;
2. an environment variable;
3. the file named by `--config`, in the format of Kafka's `server.properties`;
4. the default.

Environment variables are named as in Kafka's container image: `KAFKA_` and the name in upper case,
with `_` for a dot, `__` for an underscore and `___` for a dash: `KAFKA_NUM_PARTITIONS`. Those of
Kohort's own settings begin with `KOHORT_`: `KOHORT_METRICS_PORT`. Bitnami's prefix `KAFKA_CFG_`
works, too; `KAFKA_` takes precedence. Variables that Kubernetes sets for a Service called `kohort`
or `kafka` (`KOHORT_SERVICE_HOST`, `KOHORT_PORT=tcp://...`) are ignored.

- Settings of any Kafka release that have no effect here are accepted and logged once at the start;
  the last section lists them.
- A misspelt name stops the start, and the message suggests the setting. A name is misspelt if it is
  at most two edits (one if it is short) away from a setting with an effect: a letter added, missing
  or wrong, or two letters swapped.
- Any other name is logged as a warning: it may belong to a client, another program or a plug-in.
- A value out of range stops the start with a message that names its source and what is allowed. So
  does a value for security that Kohort does not provide: an authorizer class, SASL mechanism, JAAS
  module, callback handler, key store format or TLS version. The tables leave out lower bounds of 0
  and 1.

Settings marked *at run time* can be changed while the broker runs, for this broker or as the
default of all brokers, with `kohort config set` or `kafka-configs.sh --entity-type brokers`. As in
Kafka 4, `min.insync.replicas` always exists as a default of all brokers.
"""

_TOPIC_HEAD: Final = """\
## Topic configs

All topic configs of Kafka 4.4, set when a topic is created or with IncrementalAlterConfigs
(`kohort config set --topic`). If a topic does not set one, the broker setting in the
second column applies, whose default is shown and which can be changed at run time.
"""

_GROUP_HEAD: Final = """\
## Group configs

Share groups have, besides the overrides of broker settings:

| Config | Default | Meaning |
|---|---|---|"""

_IGNORED_HEAD: Final = """\
## Accepted and ignored

These settings of a `server.properties` made for Kafka have no effect. DescribeConfigs describes
them with Kafka's type and default. Those with an asterisk can also be set at run time; they are
validated and stored as in Kafka. A value is rejected if ignoring it would break a promise, such as
`remote.storage.enable=true`.
"""


_TOPIC_CONFIGS: Final = tuple(
    config for config in TOPIC_SETTINGS.values() if config.declared.honoured
)


def _limits(known: Setting) -> list[Setting]:
    """Return the smallest and the largest value of the group config that overrides a setting."""
    family, _, rest = known.name.removeprefix("group.").partition(".")
    names = (f"group.{family}.{end}.{rest}" for end in ("min", "max"))
    return [BROKER_SETTINGS[name] for name in names if name in BROKER_SETTINGS]


_LIMITS: Final = {limit.name for known in BROKER_SETTINGS.values() for limit in _limits(known)}


def document() -> str:
    """Return the text of docs/configuration.md."""
    tables = (*_broker_tables(), *_topic_tables(), *_group_table())
    return "\n".join([_HEAD, *tables, *_ignored_lists()])


def _broker_tables() -> Iterator[str]:
    section = ""
    for known in _listed(BROKER_SETTINGS.values()):
        if not known.declared.honoured or _is_in_topic_table(known) or known.name in _LIMITS:
            continue
        if known.section != section:
            section = known.section
            yield f"\n## {section}\n"
            yield "| Setting | Default | Meaning |\n|---|---|---|"
        meaning = known.declared.doc
        if known.declared.falls_back_to:
            meaning += f" Falls back to `{known.declared.falls_back_to}`."
        if known.declared.dynamic:
            meaning += " *At run time.*"
        meaning += _allowed(known)
        limits = _limits(known)
        if limits:
            low, high = (f"`{limit.name}` ({limit.default})" for limit in limits)
            meaning += f" Limits: {low}, {high}."
        yield f"| `{known.name}` | {_default(known)} | {meaning} |"


def _topic_tables() -> Iterator[str]:
    yield "\n" + _TOPIC_HEAD
    yield "### Honoured\n"
    yield "| Config | Broker setting | Default | Meaning |\n|---|---|---|---|"
    for known in _listed(TOPIC_SETTINGS.values()):
        if known.declared.honoured:
            source = known.declared.falls_back_to
            yield (
                f"| `{known.name}` | {f'`{source}`' if source else ''} | {_default(known)} "
                f"| {known.declared.doc}{_allowed(known)} |"
            )
    yield "\n### Accepted and stored, without effect\n"
    yield "| Config | Meaning |\n|---|---|"
    by_meaning: dict[str, list[str]] = {}
    for known in _listed(TOPIC_SETTINGS.values()):
        if not known.declared.honoured:
            by_meaning.setdefault(known.declared.doc, []).append(f"`{known.name}`")
    for meaning, names in by_meaning.items():
        yield f"| {', '.join(names)} | {meaning} |"
    yield ""


def _group_table() -> Iterator[str]:
    yield _GROUP_HEAD
    for known in _listed(settings_of(ShareGroupConfigs).values()):
        yield f"| `{known.name}` | {_default(known)} | {known.declared.doc}{_allowed(known)} |"
    yield ""


def _is_in_topic_table(known: Setting) -> bool:
    """Whether it is only the default of a topic config, whose row says everything about it."""
    doc = known.declared.doc
    configs = [config for config in _TOPIC_CONFIGS if config.declared.falls_back_to == known.name]
    is_plain = any(doc == f"Default of the topic config {config.name}." for config in configs)
    return is_plain and known.declared.falls_back_to is None


def _ignored_lists() -> Iterator[str]:
    yield _IGNORED_HEAD
    by_reason: dict[str, list[str]] = {}
    dynamic = {name for name, entry in ignored_settings().items() if entry.declared.dynamic}
    for name, reason in ignored_names().items():
        mark = "*" if name in dynamic else ""
        by_reason.setdefault(reason, []).append(f"`{name}`{mark}")
    for prefix, reason in ignored_prefixes().items():
        by_reason.setdefault(reason, []).append(f"`{prefix}*`")
    unused = [
        f"`{known.name}`"
        for known in _listed(BROKER_SETTINGS.values())
        if not known.declared.honoured
    ]
    by_reason["Settings that have no effect yet, and defaults of topic configs that have none."] = (
        unused
    )
    for reason, names in by_reason.items():
        yield f"\n**{reason}** {', '.join(names)}"
    yield ""


def _listed(settings: Iterable[Setting]) -> Iterator[Setting]:
    yield from (known for known in settings if not known.declared.internal)


def _default(known: Setting) -> str:
    text = known.format(known.default)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _allowed(known: Setting) -> str:
    """Return the range of its values; empty if any value of its type is allowed."""
    declared = known.declared
    if declared.one_of:
        return f" Allowed: {known.allowed()}."
    if declared.at_least in {None, 0, 1} and declared.at_most is None:
        return ""
    _, _, bounds = known.allowed().partition(" of ")
    return f" {bounds[0].upper()}{bounds[1:]}."
