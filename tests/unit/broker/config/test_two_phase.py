"""Two-phase commit cannot be turned on."""

import pytest

from kohort.broker.config import ConfigError, load


def test_two_phase_commit_is_refused_at_the_start() -> None:
    load(overrides=["transaction.two.phase.commit.enable=false"])
    with pytest.raises(ConfigError, match="KIP-939"):
        load(overrides=["transaction.two.phase.commit.enable=true"])
