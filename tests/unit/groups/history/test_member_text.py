"""The fast way to a member's JSON, held against the plain one."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from kohort.groups.events import Certainty
from kohort.groups.history.json_form import member_as_json, member_text
from kohort.groups.history.model import MemberFate, MemberPartitions, MemberTimeline

TEXTS = st.text(max_size=8)
NUMBERS = st.integers(min_value=-(1 << 70), max_value=1 << 70)
BY_TYPE = {
    "str": TEXTS,
    "str | None": st.none() | TEXTS,
    "int": NUMBERS,
    "int | None": st.none() | NUMBERS,
    "bool": st.booleans(),
    "MemberFate": st.sampled_from(MemberFate),
    "Certainty": st.sampled_from(Certainty),
    "tuple[str, ...]": st.lists(TEXTS, max_size=3).map(tuple),
}


def fields_of(cls: type) -> dict[str, st.SearchStrategy[object]]:
    """Every field gets any value that its type allows; a new one comes with it."""
    kinds = {
        field.name: field.type.__name__ if isinstance(field.type, type) else str(field.type)
        for field in fields(cls)
    }
    return {name: BY_TYPE[kind] for name, kind in kinds.items() if kind in BY_TYPE}


def fields(cls: type) -> tuple["dataclasses.Field[object]", ...]:
    return dataclasses.fields(cls)


PARTITIONS = st.builds(MemberPartitions, **fields_of(MemberPartitions))
MEMBERS = st.builds(MemberTimeline, partitions=PARTITIONS, **fields_of(MemberTimeline))


def test_all_fields_are_made_up() -> None:
    assert len(fields_of(MemberPartitions)) == len(fields(MemberPartitions))
    assert len(fields_of(MemberTimeline)) == len(fields(MemberTimeline)) - 1


@given(MEMBERS)
def test_a_member_is_written_as_its_json_form_is_byte_for_byte(member: MemberTimeline) -> None:
    assert member_text(member) == json.dumps(member_as_json(member), separators=(",", ":"))
