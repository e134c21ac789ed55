"""Checks the passwords of PLAIN, which takes milliseconds each, on threads of their own.

Two at a time, so that a crowd that logs in leaves the loop its processor; a success is remembered
for a minute, so that a crowd that comes back need not wait.
"""

import asyncio
import hmac
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kohort.broker.core.security.exchange import Done, SaslFailure
from kohort.broker.core.security.plain import WRONG, PlainLogin, read_plain
from kohort.broker.core.security.scram import Credential
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.later import Later
from kohort.broker.security.users import Users
from kohort.protocol.scram import HASHES, keys_of, salted_password

THREADS: Final = 2
WAITING_MAX: Final = 256
REMEMBERED_MS: Final = 60_000
REMEMBERED_MAX: Final = 10_000


class Passwords:
    """Whether a user has a password."""

    def __init__(self, users: Users, clock: Clock) -> None:
        self._users = users
        self._clock = clock
        self._threads: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._key = os.urandom(32)
        self._remembered: dict[str, tuple[bytes, int]] = {}
        """What a user's password made of a key that only this process has, and when."""
        users.on_change(self._forget)

    def close(self) -> None:
        """Begin no more checks."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def check(self, login: PlainLogin) -> Done | Later[Done]:
        """Let a user in, or fail with SaslFailure; at once only where it is remembered."""
        remembered = self._remembered.get(login.user)
        now_ms = self._clock.monotonic_ms()
        is_fresh = remembered is not None and now_ms - remembered[1] < REMEMBERED_MS
        if remembered is not None and is_fresh and self._is_same(remembered[0], login):
            login.check_authzid()
            return Done(b"", login.user)
        if self._waiting >= WAITING_MAX:
            raise SaslFailure("too many passwords to check", WRONG)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kohort-passwords")
        mechanism, credential = self._users.any_of(login.user)
        self._waiting += 1
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, _is_right, mechanism, credential, login.password)
        later: Later[Done] = Later()

        def tell(done: asyncio.Future[bool]) -> None:
            self._waiting -= 1
            if done.cancelled() or done.exception() is not None:
                later.fail(SaslFailure("the password could not be checked", WRONG))
            else:
                self._give(later, login, credential, is_right=done.result())

        work.add_done_callback(tell)
        return later

    def _give(
        self, later: Later[Done], login: PlainLogin, credential: Credential, *, is_right: bool
    ) -> None:
        if not is_right or credential.is_made_up:
            reason = "unknown user" if credential.is_made_up else "wrong password"
            later.fail(SaslFailure(reason, WRONG))
            return
        if credential in {one for _, one in self._users.credentials_of(login.user)}:
            # Unless it was changed meanwhile.
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[login.user] = (self._mark(login), self._clock.monotonic_ms())
        try:
            login.check_authzid()
        except SaslFailure as failure:
            later.fail(failure)
            return
        later.give(Done(b"", login.user))

    def _is_same(self, mark: bytes, login: PlainLogin) -> bool:
        return hmac.compare_digest(mark, self._mark(login))

    def _mark(self, login: PlainLogin) -> bytes:
        return hmac.digest(self._key, login.user.encode() + b"\0" + login.password, "sha256")

    def _forget(self, user: str) -> None:
        self._remembered.pop(user, None)


class PlainExchange:
    """One attempt by PLAIN. `given` are passwords that the settings have themselves."""

    def __init__(
        self, check: Callable[[PlainLogin], Done | Later[Done]], given: Mapping[str, str]
    ) -> None:
        self.user = ""
        self._check = check
        self._given = given

    def step(self, token: bytes) -> Done | Later[Done]:
        """Answer the one token. Raises SaslFailure."""
        login = read_plain(token)
        self.user = login.user
        given = self._given.get(login.user)
        if given is None:
            return self._check(login)
        if not hmac.compare_digest(given.encode(), login.password):
            raise SaslFailure("wrong password", WRONG)
        login.check_authzid()
        return Done(b"", login.user)


def _is_right(mechanism: str, credential: Credential, password: bytes) -> bool:
    hash_name = HASHES[mechanism]
    salted = salted_password(hash_name, password, credential.salt, credential.iterations)
    made = keys_of(hash_name, salted)
    return hmac.compare_digest(made.stored_key, credential.keys.stored_key)
