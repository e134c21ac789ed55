"""Derives the rebalance history from records of __consumer_offsets, polls and logs; without I/O."""
