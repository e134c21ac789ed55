"""The broker of a test: what it runs on, what tests do to it, and the faults that they put into it.

All of it works on the running loop. `kohort.testing.kafka` puts a thread around it, and
`kohort.testing.virtual_kafka` virtual time.
"""
