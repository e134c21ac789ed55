import copy
import pickle

import pytest

from kohort.client.core.errors import (
    ConsumerError,
    CorruptRecordError,
    DeserialisationError,
    LogTruncatedError,
    NoOffsetError,
    PartitionError,
    error_for,
    is_refusal,
)
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import ConsumerRecord, RawRecord
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import TimestampType

PARTITION = TopicPartition("t", 1)
RECORD: RawRecord = ConsumerRecord(
    "t", 1, 5, 77, TimestampType.CREATE_TIME, b"key", None, 3, -1, (("h", b"v"),)
)


@pytest.mark.parametrize(
    "error",
    [
        NoOffsetError("no offset", PARTITION),
        CorruptRecordError("corrupt", PARTITION, 5, 8, code=ErrorCode.CORRUPT_MESSAGE),
        LogTruncatedError(PARTITION, 5, OffsetAndMetadata(3, "", 2)),
        DeserialisationError("no json", RECORD),
    ],
)
def test_an_error_that_goes_to_another_process_keeps_its_place(error: PartitionError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_what_somebody_has_to_mend_is_told_from_what_may_pass() -> None:
    assert is_refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert is_refusal(ErrorCode.FENCED_INSTANCE_ID)
    assert not is_refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert not is_refusal(ErrorCode.NOT_COORDINATOR)


def test_every_code_makes_an_error() -> None:
    for code in ErrorCode:
        error = error_for(code, "asking")
        assert isinstance(error, ConsumerError)
        assert error.code is code
