"""Version-dependent error codes of the transactional APIs. Contains no handlers."""

from kohort.protocol.errors import ErrorCode


def fenced_in(version: int, error: ErrorCode, *, since: int) -> ErrorCode:
    """Return `error` for this version: PRODUCER_FENCED exists `since` a later one, and was
    INVALID_PRODUCER_EPOCH before (KIP-588).
    """
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < since
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error
