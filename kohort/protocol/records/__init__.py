"""Record batches of format 2 (KIP-98): headers, records, compression, control markers.

`batch` is all a broker needs to store and serve; `record` and `builder` look inside.
"""
