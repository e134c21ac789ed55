"""The broker's counters and their export to Prometheus.

On the hot paths, counters are plain Python numbers (`tally`, `requests`, `stalls`, and the network
layer's counters in `kohort.broker.network.metrics`). Everything else happens when metrics are
scraped (`exposition`): prometheus-client is not even imported before that.
"""
