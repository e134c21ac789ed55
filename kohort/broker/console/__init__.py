"""The console: the broker's web interface, read-only unless `kohort.console.write` allows setting
offsets.
"""
