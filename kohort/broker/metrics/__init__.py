"""The broker's counters and their export to Prometheus.

Counters are plain Python numbers on the hot paths (`tally`, `requests`, `loop_lag`, `gc_pauses`,
and the edge's own in `kohort.broker.network.metrics`). Everything else happens when metrics are
scraped (`scrape`): prometheus-client is not even imported before that.
"""
