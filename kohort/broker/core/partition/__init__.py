"""Pure rules of one partition: which batches it accepts, and the state of idempotent producers."""
