"""Record batches of format 2 (KIP-98): headers, records, compression, control markers.

`batch` is enough to store and serve batches; `record` and `builder` read and write their records.
"""
