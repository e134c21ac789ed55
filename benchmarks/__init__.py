"""Measures Kohort and, where Java is present, a real Apache Kafka beside it in the same run.

`make bench` runs `python -m benchmarks`. One module per subject; see :mod:`benchmarks.harness` for
what a subject is, and :mod:`benchmarks.brokers` for how the brokers are started.
"""
