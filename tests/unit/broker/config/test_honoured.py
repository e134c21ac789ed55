"""A setting is said to be honoured exactly if some code reads it and does something with it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.group import BOUNDED
from kohort.broker.config.topic import TOPIC_SETTINGS

BROKER = Path(__file__).parents[4] / "kohort/broker"

HONOURED_WITHOUT_BEING_READ = {
    # Kafka asks for no more replicas than there are, and there is one.
    "min.insync.replicas",
    # Replaces segment.bytes when the configs of a topic are put together.
    "internal.segment.bytes",
    # The bounds of configs of groups, by computed names.
    *(
        f"group.{kind}.{bound}.{config}"
        for kind, _, config in (name.partition(".") for name in BOUNDED)
        for bound in ("min", "max")
    ),
}


@cache
def read_attributes() -> frozenset[str]:
    """Every attribute that the broker's code looks up, apart from where settings are declared.

    What a comment, a parameter or a name of another kind says does not count, and neither does a
    value that is looked up and dropped.
    """
    sources = [path for path in BROKER.rglob("*.py") if BROKER / "config" not in path.parents]
    # Where settings of listeners are checked together, and configs of groups.
    sources += [
        BROKER / "config" / name for name in ("broker.py", "listeners.py", "group.py", "share.py")
    ]
    return frozenset(
        name for path in sources for name in attributes_in(ast.parse(path.read_text("utf-8")))
    )


def attributes_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            continue
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
                yield child.attr


def test_only_what_is_looked_up_and_used_counts() -> None:
    source = """
# in_a_comment
def function(parameter, config):
    "in_a_docstring"
    config.dropped
    config.assigned = parameter
    return config.used
"""
    assert set(attributes_in(ast.parse(source))) == {"used"}


FALLBACKS = {
    setting.declared.falls_back_to
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
}


def test_a_topic_config_is_honoured_exactly_if_it_is_read() -> None:
    settings = TOPIC_SETTINGS.values()
    read = {one.name for one in settings if one.attribute in read_attributes()}
    honoured = {one.name for one in settings if one.declared.honoured}
    assert honoured == read | (HONOURED_WITHOUT_BEING_READ & TOPIC_SETTINGS.keys())


def test_a_broker_setting_is_honoured_exactly_if_it_is_read() -> None:
    settings = [one for one in BROKER_SETTINGS.values() if one.name not in FALLBACKS]
    read = {one.name for one in settings if one.attribute in read_attributes()}
    honoured = {one.name for one in settings if one.declared.honoured}
    assert honoured == read | (HONOURED_WITHOUT_BEING_READ & {one.name for one in settings})
