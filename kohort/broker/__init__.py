"""The broker: logic without I/O in `core`, files in `storage`; `app` wires all parts."""
