"""The pytest plugin, as this run has loaded it."""

from _pytest.assertion.rewrite import AssertionRewritingHook

from kohort import version


def test_assertions_of_kohort_are_not_rewritten() -> None:
    assert isinstance(globals()["__loader__"], AssertionRewritingHook)
    assert not isinstance(version.__loader__, AssertionRewritingHook)
