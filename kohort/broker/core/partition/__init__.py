"""Pure rules of one partition: which batches it accepts, and what idempotent producers may send."""
