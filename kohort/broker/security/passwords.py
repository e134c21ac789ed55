"""Checks the passwords of PLAIN in two threads, because each check takes milliseconds.

Two threads leave a processor to the event loop while many clients log in. A success is cached for a
minute, so that many clients can reconnect without waiting. Checks are queued round robin over
address blocks, so that a client that floods the broker with passwords delays only itself.
"""

import asyncio
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from kohort.broker.core.security.addresses import address_block_of
from kohort.broker.core.security.fair_queue import FairQueue
from kohort.broker.core.security.sasl import (
    WRONG,
    Credential,
    Done,
    PlainLogin,
    SaslFailure,
    read_plain,
)
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.low_priority_threads import LowPriorityThreads, Threads
from kohort.broker.security.users import PasswordWork, Users
from kohort.protocol.scram import HASHES, keys_of, salted_password

THREADS: Final = 2
WAITING_MAX: Final = 256
"""Maximum number of queued checks; beyond that, `FairQueue` drops a check of the longest queue."""
REMEMBERED_MS: Final = 60_000
REMEMBERED_MAX: Final = 10_000

_NO_MARK: Final = bytes(32)
"""Stands for the cached HMAC if there is none; no password has this HMAC."""


@dataclass(slots=True, eq=False)
class _Check:
    login: PlainLogin
    address_block: str
    wrong_because: str
    """Why the login is rejected whatever the password; empty if the password decides."""
    later: Deferred[Done]


class Passwords:
    def __init__(
        self,
        users: Users,
        clock: Clock,
        threads: Threads | None = None,
        *,
        is_disabled: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`threads` are two low-priority threads by default. Checking a disabled user takes as much
        work as checking any other.
        """
        self.is_disabled = is_disabled
        self._users = users
        self._clock = clock
        self._threads = threads or LowPriorityThreads("passwords", THREADS)
        self._waiting: FairQueue[str, _Check] = FairQueue(WAITING_MAX)
        self._running_count = 0
        self._is_closed = False
        self._key = os.urandom(32)
        self._remembered: dict[str, tuple[bytes, int]] = {}
        """HMAC of user and password with a key of this process, and time of the check, by user."""
        users.on_change(self._forget)

    @property
    def waiting_count(self) -> int:
        return self._waiting.count

    def close(self) -> None:
        """Stop starting password checks."""
        self._is_closed = True
        self._threads.close()

    def check(self, login: PlainLogin, ip: str) -> Done | Deferred[Done]:
        """Check a password. Raises SaslFailure, or returns a `Deferred` that fails with it. The
        result is immediate only if the password is cached or too many checks are queued.
        """
        if self.is_disabled(login.user):
            return self.refuse(login, ip, "the user is disabled")
        # The HMAC is computed for every user, so that the time does not reveal recent logins.
        mark, marked_ms = self._remembered.get(login.user, (_NO_MARK, 0))
        is_same = hmac.compare_digest(mark, self._mark(login))
        if is_same and self._clock.monotonic_ms() - marked_ms < REMEMBERED_MS:
            login.check_authzid()
            return Done(b"", login.user)
        return self._check_slowly(login, ip)

    def refuse(self, login: PlainLogin, ip: str, because: str) -> Deferred[Done]:
        """Fail with SaslFailure, after as much work as for a check."""
        self._mark(login)
        return self._check_slowly(login, ip, because)

    def _check_slowly(self, login: PlainLogin, ip: str, wrong_because: str = "") -> Deferred[Done]:
        check = _Check(login, address_block_of(ip), wrong_because, Deferred())
        dropped = check if self._is_closed else self._waiting.add(check.address_block, check)
        if dropped is check:
            raise _too_many()
        if dropped is not None:
            dropped.later.set_exception(_too_many())
        # Checks of clients that have disconnected are removed from the queue.
        check.later.add_done_callback(lambda _: self._waiting.remove(check.address_block, check))
        self._start_checks()
        return check.later

    def _start_checks(self) -> None:
        while self._running_count < THREADS and self._waiting.count and not self._is_closed:
            check = self._waiting.take()
            # Looked up only now: credentials may have changed while the check was queued.
            to_do = self._users.work_for(check.login.user)
            self._running_count += 1
            work = self._threads.begin(partial(_is_right, to_do, check.login.password))
            work.add_done_callback(partial(self._finish, check, to_do))

    def _finish(
        self, check: _Check, to_do: Sequence[PasswordWork], done: asyncio.Future[bool]
    ) -> None:
        self._running_count -= 1
        self._start_checks()
        if done.cancelled() or done.exception() is not None:
            check.later.set_exception(SaslFailure("the password could not be checked", WRONG))
            return
        credential = next((work.credential for work in to_do if _is_stored(work)), None)
        because = check.wrong_because
        if not because and not done.result():
            because = "unknown user" if credential is None else "wrong password"
        self._give(check.later, check.login, credential, because)

    def _give(
        self,
        later: Deferred[Done],
        login: PlainLogin,
        credential: Credential | None,
        wrong_because: str,
    ) -> None:
        if wrong_because:
            later.set_exception(SaslFailure(wrong_because, WRONG))
            return
        if credential in {stored for _, stored in self._users.credentials_of(login.user)}:
            # The condition keeps an old password out of the cache: if the credential has changed
            # during the check, `_forget` was called too early to remove it.
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[login.user] = (self._mark(login), self._clock.monotonic_ms())
        try:
            login.check_authzid()
        except SaslFailure as failure:
            later.set_exception(failure)
            return
        later.set_result(Done(b"", login.user))

    def _mark(self, login: PlainLogin) -> bytes:
        return hmac.digest(self._key, login.user.encode() + b"\0" + login.password, "sha256")

    def _forget(self, user: str) -> None:
        self._remembered.pop(user, None)


class PlainExchange:
    """One attempt to authenticate with PLAIN. `given` are the passwords in `sasl.jaas.config`."""

    def __init__(self, passwords: Passwords, given: Mapping[str, str], ip: str) -> None:
        self.user = ""
        self._passwords = passwords
        self._given = given
        self._ip = ip

    def step(self, token: bytes) -> Done | Deferred[Done]:
        """Process the client's only SASL message. Raises SaslFailure."""
        login = read_plain(token)
        self.user = login.user
        given = self._given.get(login.user)
        is_given = hmac.compare_digest((given or "").encode(), login.password)
        if given is None or self._passwords.is_disabled(login.user):
            return self._passwords.check(login, self._ip)
        if not is_given:
            # An immediate response would reveal that the name is in the settings.
            return self._passwords.refuse(login, self._ip, "wrong password")
        login.check_authzid()
        return Done(b"", login.user)


def _too_many() -> SaslFailure:
    return SaslFailure("too many queued password checks", WRONG)


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
