"""The options of `kohort serve` that are read without argparse."""

import argparse

import pytest

from kohort.broker.__main__ import add_arguments, plain_options


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--port", "0"],
        ["--port", "65535", "--data", "there"],
        ["--override", "a=b", "--data", "x y", "--override", "c=--d", "--port", "9092"],
        ["--config", "first", "--override", "", "--config", "second"],
    ],
)
def test_pairs_of_a_name_and_a_value_mean_the_same_as_to_argparse(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parsed = parser.parse_args(arguments)
    assert plain_options(arguments) == (parsed.config, parsed.override)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--data"],
        ["--data=there"],
        ["--over", "a=b"],
        ["--port", "65536"],
        ["--port", "9" * 5_000],
        ["--data", "--port"],
        ["--config", "-x"],
        ["--override", "a=b", "--nosuch", "c"],
        ["there", "--data"],
    ],
)
def test_argparse_reads_and_rejects_the_others(arguments: list[str]) -> None:
    assert plain_options(arguments) is None
