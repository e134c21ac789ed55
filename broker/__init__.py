"""The broker: pure rules in `core`, files in `storage`, and the shells around them. `app.py` wires the parts."""
