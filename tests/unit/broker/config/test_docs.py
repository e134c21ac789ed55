"""docs/configuration.md says what the declarations say."""

from pathlib import Path

from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.ignored import ignored_names
from kohort.broker.config.topic import TOPIC_SETTINGS
from scripts.configuration_document import PATH, document

ROOT = Path(__file__).parents[4]


def test_the_document_is_what_the_declarations_make_it() -> None:
    assert (ROOT / PATH).read_text(encoding="utf-8") == document(), "run `make docs`"


def test_every_setting_is_in_the_document() -> None:
    text = document()
    settings = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
    names = [one.name for one in settings if not one.declared.internal]
    missing = [name for name in [*names, *ignored_names()] if f"`{name}`" not in text]
    assert missing == []


def test_what_has_no_effect_is_told_apart() -> None:
    honoured, _, unused = document().partition("### Accepted and stored, without effect")
    assert "| `retention.ms` |" in honoured
    assert "| `preallocate`" in unused
