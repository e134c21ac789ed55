import pytest

from kohort.client.core.errors import ConfigError
from kohort.client.core.offsets import EARLIEST, LATEST, ResetPolicy, as_committed

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("none", None),
        ("by_duration:PT1H", NOW_MS - 3_600_000),
        ("by_duration:P1D", NOW_MS - 86_400_000),
        ("by_duration:P1DT2H3M4.5S", NOW_MS - 93_784_500),
        ("by_duration:pt90m", NOW_MS - 5_400_000),
        ("by_duration:P99999999D", 0),
    ],
)
def test_a_reset_policy_says_what_to_look_for_at_a_time(text: str, spec: int | None) -> None:
    assert ResetPolicy.parse(text).spec_at(NOW_MS) == spec


@pytest.mark.parametrize(
    "text", ["", "Earliest", "begin", "by_duration", "by_duration:", "by_duration:1h"]
)
def test_what_is_no_reset_policy_is_an_error_that_names_the_setting(text: str) -> None:
    with pytest.raises(ConfigError, match="auto_offset_reset must be earliest, latest, none or"):
        ResetPolicy.parse(text)


@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "PT1", "P-1D", "PT1.5H", "P1Y", "PT1H "])
def test_what_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="not a duration"):
        ResetPolicy.parse(f"by_duration:{text}")


@pytest.mark.parametrize("topic", ["orders", "t0"])
def test_a_topic_alone_has_no_offset_to_commit(topic: str) -> None:
    with pytest.raises(TypeError, match=f"'{topic}' is not a TopicPartition"):
        as_committed({topic: 3})  # type: ignore[dict-item]
