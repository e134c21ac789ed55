from kohort.broker.network.connection.end import ConnectionEnd
from kohort.broker.network.connection.limits import FRAME_PROGRESS_BYTES, NetworkLimits
from kohort.broker.network.service import FramePart
from kohort.broker.network.timeouts import LINGER_MS, CloseReason

LIMITS = NetworkLimits(connections_max_idle_ms=600_000, kohort_frame_timeout_ms=30_000)


class Watched:
    """A connection that is looked at once a second."""

    def __init__(self, limits: NetworkLimits = LIMITS) -> None:
        self.end = ConnectionEnd()
        self.limits = limits
        self.now_ms = 0
        self.unsent_bytes = 0
        self.part: FramePart | None = None
        self.is_waiting_for_us = False

    def closed_after_s(self, seconds: int) -> tuple[int, CloseReason] | None:
        for second in range(1, seconds + 1):
            self.now_ms += 1_000
            reason = self.end.check(
                self.now_ms,
                self.limits,
                unsent_bytes=self.unsent_bytes,
                part=self.part,
                is_waiting_for_us=self.is_waiting_for_us,
            )
            if reason is not None:
                return second, reason
        return None


def test_a_connection_without_requests_is_closed_after_the_idle_time() -> None:
    watched = Watched()
    assert watched.closed_after_s(1_000) == (601, CloseReason.IDLE)


def test_a_connection_that_sends_something_is_not_idle() -> None:
    watched = Watched()
    for _ in range(10):
        assert watched.closed_after_s(599) is None
        watched.end.is_active = True


def test_a_connection_whose_request_is_parked_is_not_idle() -> None:
    watched = Watched()
    watched.is_waiting_for_us = True
    assert watched.closed_after_s(5_000) is None
    watched.is_waiting_for_us = False
    assert watched.closed_after_s(1_000) == (600, CloseReason.IDLE)


def test_a_client_that_takes_its_response_slowly_is_not_idle_and_one_that_stopped_is() -> None:
    watched = Watched()
    for left in range(1_000_000, 0, -100_000):
        watched.unsent_bytes = left
        assert watched.closed_after_s(500) is None
    outcome = watched.closed_after_s(1_000)
    assert outcome is not None
    assert outcome[1] is CloseReason.IDLE


def test_a_negative_idle_time_means_never() -> None:
    watched = Watched(NetworkLimits(connections_max_idle_ms=-1))
    assert watched.closed_after_s(10_000) is None


def test_a_frame_that_is_not_completed_ends_the_connection() -> None:
    watched = Watched()
    watched.part = FramePart(1, 3)
    assert watched.closed_after_s(100) == (31, CloseReason.FRAME_TIMEOUT)


def test_dripping_bytes_does_not_prolong_a_frame() -> None:
    watched = Watched()
    for second in range(31):
        watched.part = FramePart(1, second)
        watched.end.is_active = True
        outcome = watched.closed_after_s(1)
        assert (outcome is not None) == (second == 30)


def test_a_large_upload_may_take_its_time_if_it_moves() -> None:
    watched = Watched()
    for piece in range(100):
        watched.part = FramePart(1, piece * FRAME_PROGRESS_BYTES)
        watched.end.is_active = True
        assert watched.closed_after_s(29) is None


def test_each_frame_has_its_own_time() -> None:
    watched = Watched()
    for number in range(100):
        watched.part = FramePart(number, 1)
        watched.end.is_active = True
        assert watched.closed_after_s(29) is None


def test_a_connection_we_closed_may_not_linger() -> None:
    watched = Watched()
    assert watched.end.begin(CloseReason.SHUTDOWN)
    outcome = watched.closed_after_s(100)
    assert outcome is not None
    assert outcome[0] == LINGER_MS // 1_000 + 1
