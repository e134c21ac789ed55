"""Random lives of one transactional id: replay makes what was live, and nothing illegal happens."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.core.transaction.records import TransactionTombstone, last_epoch_of
from kohort.protocol.errors import ErrorCode
from tests.support.suites.examples import examples
from tests.support.transactions.driven_id import (
    ABORT,
    COMMIT,
    ORDERS,
    OTHER,
    PID,
    TIMEOUT_MS,
    V1,
    V2,
    Driven,
    S,
    replayed,
    stored,
)

NEAR = [-1, 0, 1]
STEPS = st.one_of(
    st.tuples(st.just("init"), st.sampled_from([None, *NEAR])),
    st.tuples(
        st.just("add"),
        st.sampled_from(NEAR),
        st.sampled_from([V1, V2]),
        st.sampled_from([ORDERS, OTHER]),
    ),
    st.tuples(
        st.just("end"),
        st.sampled_from(NEAR),
        st.sampled_from([V1, V2]),
        st.sampled_from([COMMIT, ABORT]),
    ),
    st.tuples(
        st.sampled_from(["pass", "late", "forget", "hold", "release", "fail", "retry", "break"])
    ),
)


@settings(max_examples=examples(300))
@given(st.sampled_from([0, 1, 7, 32_764, 32_766]), st.lists(STEPS, max_size=40))
def test_replay_is_live(epoch: int, steps: list[tuple[object, ...]]) -> None:
    driven = Driven(stored(S.EMPTY, epoch))
    driven.log.append(stored(S.EMPTY, epoch))
    for step in steps:
        _take(driven, step)
        again = replayed(driven.log)
        assert again.record == driven.core.record
        last = again.last_epoch
        assert last in {driven.core.last_epoch, -1}
        if driven.core.record is not None and last_epoch_of(driven.core.record) != -1:
            assert last == driven.core.last_epoch
    _check_log(driven)


def _take(driven: Driven, step: tuple[object, ...]) -> None:
    record = driven.core.record
    pid, epoch = (PID, 0) if record is None else (record.producer_id, record.producer_epoch)
    driven.now += 10
    match step:
        case ("init", None):
            driven.init()
        case ("init", int(change)) if epoch + change >= 0:
            driven.init(pid, epoch + change)
        case ("add", int(change), version, partition):
            driven.add(partition, producer_id=pid, epoch=epoch + change, version=version)  # type: ignore[arg-type]
        case ("end", int(change), version, result):
            driven.end(result, producer_id=pid, epoch=epoch + change, version=version)  # type: ignore[arg-type]
        case ("late",):
            driven.now += TIMEOUT_MS
            driven.core.abort_overdue(driven.now)
        case ("forget",) if driven.core.is_idle:
            driven.core.forget()
        case ("hold",):
            driven.holds_appends = True
        case ("release",):
            driven.holds_appends = False
            driven.release()
        case ("fail",) if driven.held:
            driven.fail()
        case ("retry",):
            driven.marker_errors.clear()
            driven.core.retry(driven.now)
        case ("break",):
            driven.marker_errors[ORDERS] = ErrorCode.KAFKA_STORAGE_ERROR
        case _:
            pass
    driven.carry_out()


def _check_log(driven: Driven) -> None:
    """Epochs of a producer id never fall, and what was decided is completed, and nothing else."""
    epochs: dict[int, int] = {}
    previous = None
    for record in driven.log:
        if isinstance(record, TransactionTombstone):
            previous = None
            continue
        assert record.producer_epoch >= epochs.get(record.producer_id, 0)
        epochs[record.producer_id] = record.producer_epoch
        if previous is not None and previous.state.is_prepared:
            assert record.state is (
                S.COMPLETE_COMMIT if previous.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
            )
        if record.state is S.ONGOING or record.state is S.EMPTY:
            assert record.producer_epoch <= 32_766
        previous = record
