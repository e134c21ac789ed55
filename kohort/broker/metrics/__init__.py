"""What the broker counts and how it is shown to Prometheus.

Counting is plain Python numbers on the paths that are hot (`tally`, `requests`, `loop_lag`,
`gc_pauses`, and the edge's own in `kohort.broker.network.metrics`). Everything else happens when
metrics are scraped (`scrape`): prometheus-client is not even imported before that.
"""
