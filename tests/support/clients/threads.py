"""A group member whose library is driven by a thread of ours."""

import threading
from abc import abstractmethod

from tests.support.clients.model import Member, Record


class ThreadMember(Member):
    """Runs `poll_until` in a thread; a failure there is raised where the test looks next."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: list[Record] = []
        self._assigned: set[int] = set()
        self._failure: BaseException | None = None
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abstractmethod
    def poll_until(self, leaving: threading.Event) -> None:
        """Joins, reads until the event is set, commits and leaves."""

    def took(self, records: list[Record]) -> None:
        with self._lock:
            self._records += records

    def holds(self, partitions: set[int]) -> None:
        with self._lock:
            self._assigned = partitions

    def gains(self, partitions: set[int]) -> None:
        with self._lock:
            self._assigned |= partitions

    def gives_up(self, partitions: set[int]) -> None:
        with self._lock:
            self._assigned -= partitions

    def assigned(self) -> set[int]:
        self._check()
        with self._lock:
            return set(self._assigned)

    def records(self) -> list[Record]:
        self._check()
        with self._lock:
            return list(self._records)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the member did not leave"
        self._check()

    def _run(self) -> None:
        try:
            self.poll_until(self._leaving)
        except BaseException as problem:  # noqa: BLE001  Raised again in the test's own thread.
            self._failure = problem

    def _check(self) -> None:
        if self._failure is not None:
            message = "the member's thread ended"
            raise AssertionError(message) from self._failure
