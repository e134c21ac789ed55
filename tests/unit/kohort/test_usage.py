"""A command line that cannot be meant costs one line, whichever command it was for."""

import pytest

from kohort.cli import main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "COMMAND"),
        (["nosuch"], "invalid choice: 'nosuch'"),
        (["topic", "list"], "did you mean 'topics'?"),
        (["topics", "lst"], "did you mean 'list'?"),
        (["groups"], "COMMAND"),
        (["groups", "why"], "GROUP"),
        (["groups", "why", "g", "--last", "0"], "argument --last: a number from 1"),
        (["groups", "report", "g", "--nosuch"], "unrecognized arguments: --nosuch"),
        (["consume", "t", "--from-begining"], "did you mean '--from-beginning'?"),
        (["transactions", "nosuch"], "invalid choice: 'nosuch'"),
    ],
)
def test_usage_errors_are_one_line(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith("kohort")
    assert told in line
    assert line.endswith("(--help tells more)")
    assert not printed.out
