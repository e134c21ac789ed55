"""The console: the broker's own pages for a browser, which only look."""
