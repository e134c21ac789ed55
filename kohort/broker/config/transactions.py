"""Settings of transactions."""

from kohort.broker.config.settings import Boolean, Int, Settings, setting


class TransactionSettings(Settings):
    """Transactions."""

    transaction_max_timeout_ms: Int = setting(
        900_000,
        at_least=1,
        doc="Longest transaction timeout that a producer may request; a longer one is "
        "refused with INVALID_TRANSACTION_TIMEOUT.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = setting(
        10_000,
        at_least=1,
        doc="A transaction is aborted when its timeout has passed; if the machine's clock "
        "has jumped, at most this much later.",
    )
    transactional_id_expiration_ms: Int = setting(
        604_800_000,
        at_least=1,
        doc="A transactional id without a transaction is deleted after this time.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = setting(
        3_600_000,
        at_least=1,
        doc="How often expired transactional ids are deleted.",
    )
    transaction_state_log_num_partitions: Int = setting(
        50,
        at_least=1,
        doc="Partitions of __transaction_state when it is created; each transactional id is "
        "stored in one of them. Do not change it afterwards.",
    )
    transaction_state_log_segment_bytes: Int = setting(
        104_857_600,
        at_least=1,
        doc="segment.bytes of __transaction_state when it is created; a value below 1048576, the "
        "minimum of every topic, is raised to it.",
    )
    transaction_partition_verification_enable: Boolean = setting(
        True,
        dynamic=True,
        doc="Whether batches of the flow before KIP-890 must be for a partition that was "
        "added to the open transaction. Otherwise a delayed batch may block readers "
        "forever.",
    )
    transaction_two_phase_commit_enable: Boolean = setting(
        False,
        honoured=False,
        doc="Has no effect: two-phase commit (KIP-939) is not supported.",
    )
