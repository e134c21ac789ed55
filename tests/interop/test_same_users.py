"""Changes of users' credentials, at a real Kafka and at this broker: what one request may hold."""

from collections.abc import Iterator
from itertools import permutations, product
from typing import Final

import pytest

from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import fresh_name
from tests.support import messages as m

DELETE: Final = {"-256": 1, "-512": 2, "-0": 0, "-3": 3}
UPSERT: Final = {"+256": 1, "+512": 2, "+0": 0, "+3": 3}
"""What is done with one mechanism, by its number; there are only 1 and 2."""
FEW: Final = "+few"
MANY: Final = "+many"
"""Upserts of the first mechanism with too few and too many iterations."""
THERE: Final = {"none": (), "256": ("+256",), "512": ("+512",), "both": ("+256", "+512")}
"""What a user has before."""


def change(*done: tuple[str, str]) -> m.AlterUserScramCredentialsRequest:
    """Each is a name and what is done with it, in the order of the request."""
    return m.AlterUserScramCredentialsRequest(
        deletions=[
            m.ScramCredentialDeletion(name=name, mechanism=DELETE[one])
            for name, one in done
            if one in DELETE
        ],
        upsertions=[upsertion(name, one) for name, one in done if one not in DELETE],
    )


def upsertion(name: str, one: str) -> m.ScramCredentialUpsertion:
    mechanism = UPSERT.get(one, 1)
    return m.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations={FEW: 4_095, MANY: 16_385}.get(one, 4_096),
        salt=b"a salt of its own",
        salted_password=bytes(64 if mechanism == 2 else 32),
    )


def have(pair: Pair, there: str) -> str:
    """A new user with these mechanisms."""
    name = fresh_name("user")
    for one in THERE[there]:
        pair.ask(change((name, one)), 0)
    described(pair, name)
    return name


def described(pair: Pair, *names: str) -> None:
    """Both have the same of these users, after a while: Kafka's controller answers before its
    broker knows.
    """
    users = [m.UserName(name=name) for name in names]
    pair.ask_until_equal(m.DescribeUserScramCredentialsRequest(users=users), 0)


def pairs_of_changes(*, of_all: bool) -> Iterator[tuple[str, str]]:
    """Two things that are done to one user in one request; such as can be done, or `of_all`."""
    possible = ["-256", "-512", "+256", "+512"]
    others = [*DELETE, *UPSERT, FEW, MANY] if of_all else [*possible, FEW]
    for first, second in product(others, repeat=2):
        if first in DELETE or second not in DELETE:  # Deletions come first in a request.
            yield first, second


@pytest.mark.parametrize("there", THERE)
def test_one_change_of_a_user_is_answered_alike(pair: Pair, there: str) -> None:
    for one in (*DELETE, *UPSERT, FEW, MANY):
        name = have(pair, there)
        pair.ask(change((name, one)), 0)
        described(pair, name)


@pytest.mark.parametrize(
    "there",
    [pytest.param(one, marks=() if one == "256" else pytest.mark.long) for one in THERE],
)
def test_a_user_that_is_named_twice_is_answered_alike(
    pair: Pair, there: str, long_form: bool
) -> None:
    for first, second in pairs_of_changes(of_all=long_form):
        name = have(pair, there)
        pair.ask(change((name, first), (name, second)), 0)
        described(pair, name)


@pytest.mark.parametrize("size", [0, 1, 4, 1_024])
def test_a_salt_of_any_length_gets_the_same_answer(pair: Pair, size: int) -> None:
    name = fresh_name("user")
    request = change((name, "+256"))
    request.upsertions[0].salt = b"s" * size
    pair.ask(request, 0)
    described(pair, name)


@pytest.mark.parametrize("size", [1, 31, 64])
def test_a_salted_password_of_any_length_gets_the_same_answer(pair: Pair, size: int) -> None:
    name = fresh_name("user")
    request = change((name, "+256"))
    request.upsertions[0].salted_password = b"p" * size
    pair.ask(request, 0)
    described(pair, name)


@pytest.mark.long
def test_a_user_that_is_named_three_times_is_answered_alike(pair: Pair) -> None:
    for three in permutations(["-256", "-512", "+256", "+512"], 3):
        name = have(pair, "both")
        pair.ask(change(*((name, one) for one in three)), 0)
        described(pair, name)


def test_other_users_of_the_request_are_changed_all_the_same(pair: Pair) -> None:
    for twice in (("+256", "+512"), ("-256", "+256"), ("-256", "-256"), ("+0", "+256")):
        good, bad, gone = have(pair, "none"), have(pair, "256"), have(pair, "both")
        done = [(good, "+256"), *((bad, one) for one in twice), (gone, "-512")]
        pair.ask(change(*done), 0)
        described(pair, good, bad, gone)


@pytest.mark.parametrize("one", ["+256", "-256", "+0", FEW])
def test_a_user_without_a_name_is_answered_alike(pair: Pair, one: str) -> None:
    pair.ask(change(("", one)), 0)
    pair.ask(change(("", one), ("", one)), 0)
    pair.ask(change(("", one), ("", "+512")), 0)
    pair.ask(change(), 0)
