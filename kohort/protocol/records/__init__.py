"""Record batches of format 2 (KIP-98): headers, records, compression, control markers."""
