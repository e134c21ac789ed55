"""Converts settings and topic configs from Python values."""

from __future__ import annotations

from collections.abc import Mapping


def texts_of(configs: Mapping[str, object]) -> dict[str, str]:
    """Convert configs to Kafka's text form."""
    return {name: _text(value) for name, value in configs.items()}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
