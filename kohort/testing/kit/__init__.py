"""The broker of a test: its machine, the operations of tests on it, and injected faults.

Everything here works on the running loop. `kohort.testing.kafka` puts a thread around it, and
`kohort.testing.virtual_kafka` virtual time.
"""
