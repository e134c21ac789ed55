"""The broker's counters and their export to Prometheus.

On the hot paths, counters are plain Python numbers (`tally`, `requests`, `loop_lag`, `gc_pauses`,
and the edge's own in `kohort.broker.network.metrics`). Everything else happens when metrics are
scraped (`scrape`): prometheus-client is not even imported before that.
"""
