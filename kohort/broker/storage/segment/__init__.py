"""One segment: a file of batches with its indexes."""
