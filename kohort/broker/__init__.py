"""The broker: pure rules in `core`, files in `storage`, shells around them, wired in `app`."""
