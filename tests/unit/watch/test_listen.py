"""Where the HTTP port of a watcher listens."""

import pytest

from kohort.watch.listen import Listen, parse_listen


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9308", "localhost", 9308),
        (":0", "", 0),
        ("[::1]:65535", "::1", 65_535),
        ("0.0.0.0:1", "0.0.0.0", 1),
    ],
)
def test_an_address_that_is_given_is_the_only_one(text: str, host: str, port: int) -> None:
    parsed = parse_listen(text)
    assert parsed == Listen(host, port, is_given=True)
    assert str(parsed) == text


@pytest.mark.parametrize("text", ["", "localhost", "9308", "h:", "h:http", "h:65536", "h:-1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_listen(text)
