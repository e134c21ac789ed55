"""The broker of a test: its port and files, operations for tests, and injected faults.

Everything here runs on the current loop. `kohort.testing.kafka` adds a thread, and
`kohort.testing.virtual_kafka` virtual time.
"""
