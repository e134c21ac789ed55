"""Checks the passwords of PLAIN, which takes milliseconds each, on threads of their own.

Two run at a time, so that many clients that log in at once leave the event loop its processor. A
success is remembered for a minute, so that many clients that reconnect do not wait. Addresses take
turns, so that a client that floods the broker with passwords delays only itself.
"""

import asyncio
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kohort.broker.core.security.addresses import address_block_of
from kohort.broker.core.security.exchange import Done, SaslFailure
from kohort.broker.core.security.fair_queue import FairQueue
from kohort.broker.core.security.plain import WRONG, PlainLogin, read_plain
from kohort.broker.core.security.scram import Credential
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.lower_threads import LowerThreads, Threads
from kohort.broker.security.users import PasswordWork, Users
from kohort.protocol.scram import HASHES, keys_of, salted_password

THREADS: Final = 2
WAITING_MAX: Final = 256
"""Bound on the waiting checks of all addresses; `FairQueue` says whose is dropped beyond it."""
REMEMBERED_MS: Final = 60_000
REMEMBERED_MAX: Final = 10_000

_NO_MARK: Final = bytes(32)
"""The mark that belongs to no password."""


@dataclass(slots=True, eq=False)
class _Check:
    """One password that waits for its turn, or is being checked."""

    login: PlainLogin
    owner: str
    """The owner whose turn it takes."""
    wrong_because: str
    """Why it is known to be wrong; empty if that is not known yet."""
    later: Later[Done]


class Passwords:
    """Checks users' passwords, and remembers those that were right."""

    def __init__(
        self,
        users: Users,
        clock: Clock,
        threads: Threads | None = None,
        *,
        is_disabled: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`threads` default to two. Passwords of disabled users are wrong, and cost as much
        work as other wrong passwords.
        """
        self.is_disabled = is_disabled
        self._users = users
        self._clock = clock
        self._threads = threads or LowerThreads("passwords", THREADS)
        self._waiting: FairQueue[str, _Check] = FairQueue(WAITING_MAX)
        self._at_work = 0
        self._is_closed = False
        self._key = os.urandom(32)
        self._remembered: dict[str, tuple[bytes, int]] = {}
        """An HMAC of the password with a key of this process, and when it was checked, by user."""
        users.on_change(self._forget)

    @property
    def waiting_count(self) -> int:
        """The number of passwords that wait for their turn."""
        return self._waiting.count

    def close(self) -> None:
        """Begin no more checks."""
        self._is_closed = True
        self._threads.close()

    def check(self, login: PlainLogin, ip: str) -> Done | Later[Done]:
        """Let a user at an address in, or fail with SaslFailure; at once only if the password is
        remembered, or if too many checks wait.
        """
        if self.is_disabled(login.user):
            return self.refuse(login, ip, "the user is disabled")
        # For every user, so that the time taken does not reveal who has logged in before.
        mark, marked_ms = self._remembered.get(login.user, (_NO_MARK, 0))
        is_same = hmac.compare_digest(mark, self._mark(login))
        if is_same and self._clock.monotonic_ms() - marked_ms < REMEMBERED_MS:
            login.check_authzid()
            return Done(b"", login.user)
        return self._check_slowly(login, ip)

    def refuse(self, login: PlainLogin, ip: str, because: str) -> Later[Done]:
        """Fail with SaslFailure after the work of a check, for a login known to be wrong."""
        self._mark(login)
        return self._check_slowly(login, ip, because)

    def _check_slowly(self, login: PlainLogin, ip: str, wrong_because: str = "") -> Later[Done]:
        check = _Check(login, address_block_of(ip), wrong_because, Later())
        given_up = check if self._is_closed else self._waiting.add(check.owner, check)
        if given_up is check:
            raise _too_many()
        if given_up is not None:
            given_up.later.fail(_too_many())
        # A client that is gone by its turn is not worth the work or the place.
        check.later.on_done(lambda _: self._waiting.remove(check.owner, check))
        self._begin_next()
        return check.later

    def _begin_next(self) -> None:
        """Begin checks until every thread has one."""
        while self._at_work < THREADS and self._waiting.count and not self._is_closed:
            check = self._waiting.take()
            # Against current credentials: a password changed while it waited is no longer right.
            to_do = self._users.work_for(check.login.user)
            self._at_work += 1
            work = self._threads.begin(partial(_is_right, to_do, check.login.password))
            work.add_done_callback(partial(self._finish, check, to_do))

    def _finish(
        self, check: _Check, to_do: Sequence[PasswordWork], done: asyncio.Future[bool]
    ) -> None:
        self._at_work -= 1
        self._begin_next()
        if done.cancelled() or done.exception() is not None:
            check.later.fail(SaslFailure("the password could not be checked", WRONG))
            return
        credential = next((one.credential for one in to_do if _is_stored(one)), None)
        because = check.wrong_because
        if not because and not done.result():
            because = "unknown user" if credential is None else "wrong password"
        self._give(check.later, check.login, credential, because)

    def _give(
        self,
        later: Later[Done],
        login: PlainLogin,
        credential: Credential | None,
        wrong_because: str,
    ) -> None:
        if wrong_because:
            later.fail(SaslFailure(wrong_because, WRONG))
            return
        if credential in {one for _, one in self._users.credentials_of(login.user)}:
            # Not if it was changed while it was checked: `_forget` has been called already.
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[login.user] = (self._mark(login), self._clock.monotonic_ms())
        try:
            login.check_authzid()
        except SaslFailure as failure:
            later.fail(failure)
            return
        later.give(Done(b"", login.user))

    def _mark(self, login: PlainLogin) -> bytes:
        return hmac.digest(self._key, login.user.encode() + b"\0" + login.password, "sha256")

    def _forget(self, user: str) -> None:
        self._remembered.pop(user, None)


class PlainExchange:
    """One attempt of a client at an address to log in by PLAIN. `given` are the passwords in the
    settings themselves.
    """

    def __init__(self, passwords: Passwords, given: Mapping[str, str], ip: str) -> None:
        self.user = ""
        self._passwords = passwords
        self._given = given
        self._ip = ip

    def step(self, token: bytes) -> Done | Later[Done]:
        """Answer the only token. Raises SaslFailure."""
        login = read_plain(token)
        self.user = login.user
        given = self._given.get(login.user)
        is_given = hmac.compare_digest((given or "").encode(), login.password)
        if given is None or self._passwords.is_disabled(login.user):
            return self._passwords.check(login, self._ip)
        if not is_given:
            # An immediate answer would tell that the name is in the settings.
            return self._passwords.refuse(login, self._ip, "wrong password")
        login.check_authzid()
        return Done(b"", login.user)


def _too_many() -> SaslFailure:
    return SaslFailure("too many passwords to check", WRONG)


def _is_stored(work: PasswordWork) -> bool:
    return not work.credential.is_made_up


def _is_right(to_do: Sequence[PasswordWork], password: bytes) -> bool:
    is_right = False
    for work in to_do:
        credential = work.credential
        hash_name = HASHES[work.mechanism]
        salted = salted_password(hash_name, password, credential.salt, credential.iterations)
        rest = max(1, work.rounds - credential.iterations)
        salted_password(hash_name, password, credential.salt, rest)
        made = keys_of(hash_name, salted)
        is_same = hmac.compare_digest(made.stored_key, credential.keys.stored_key)
        is_right |= is_same and _is_stored(work)
    return is_right
