"""What a deliberate difference is: the fields that differ, in which way, and why."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

CLOSED: Final = "closed the connection"
SILENT: Final = "did not answer"


class Anything:
    """Equal to every value."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "anything"


class AnyText:
    """Equal to every text that says something."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and other != ""

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "a text"


class AnyTime:
    """Equal to every timestamp."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other >= 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "a time"


ANY: Final = Anything()
TEXT: Final = AnyText()
TIME: Final = AnyTime()


class Difference(NamedTuple):
    """One deliberate difference."""

    because: str
    fields: Sequence[tuple[str, object, object]]
    """Field, or the end of its path without indexes; Kafka's value; ours. "": the whole answer."""
    by_chance: bool = False
    """Now and then the answers are equal nevertheless, as where Kafka goes by the order of a hash
    table."""

    def allows(self, path: str, kafka: object, kohort: object) -> bool:
        """Whether this is meant to differ."""
        plain_path = re.sub(r"\[[0-9]+\]", "", path)
        return any(
            plain_path.endswith(field)
            and (not path or field)
            and kafka == theirs
            and kohort == ours
            for field, theirs, ours in self.fields
        )


class Later(NamedTuple):
    """A deliberate difference in when something happens."""

    because: str
    kafka_s: float
    """When it happens at Kafka, in the script that shows it."""
