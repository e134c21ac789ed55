"""Settings of transactions."""

from kohort.broker.config.settings import Boolean, Int, Settings, setting


def _two_phase_problem(is_enabled: bool) -> str | None:  # noqa: FBT001 - as all checks.
    return "two-phase commit (KIP-939) is not supported" if is_enabled else None


class TransactionSettings(Settings):
    """Transactions."""

    transaction_max_timeout_ms: Int = setting(
        900_000,
        at_least=1,
        doc="Longest time that a producer may ask for its transactions; more is refused with "
        "INVALID_TRANSACTION_TIMEOUT.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Int = setting(
        10_000,
        at_least=1,
        doc="A transaction is aborted when its time is up, and where the machine's clock has "
        "jumped at most so much later.",
    )
    transactional_id_expiration_ms: Int = setting(
        604_800_000,
        at_least=1,
        doc="A transactional id without a transaction is forgotten after so long.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: Int = setting(
        3_600_000,
        at_least=1,
        doc="How often expired transactional ids are looked for.",
    )
    transaction_state_log_num_partitions: Int = setting(
        50,
        at_least=1,
        doc="Partitions of __transaction_state when it is created; a transactional id lives in "
        "one of them. Not to be changed afterwards.",
    )
    transaction_state_log_segment_bytes: Int = setting(
        104_857_600,
        at_least=1 << 20,
        doc="segment.bytes of __transaction_state when it is created; no topic can have less.",
    )
    transaction_partition_verification_enable: Boolean = setting(
        True,
        dynamic=True,
        doc="Whether batches of the flow from before KIP-890 must be in a partition that was added "
        "to the open transaction. Without it a delayed one may hold up readers for ever.",
    )
    transaction_two_phase_commit_enable: Boolean = setting(
        False,
        check=_two_phase_problem,
        honoured=False,
        doc="Can only be false: KIP-939 is not supported.",
    )
