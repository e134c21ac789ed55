"""How many examples Hypothesis tries where a test wants another number than the others."""

from hypothesis import settings


def examples(in_long_form: int) -> int:
    """The number for `max_examples`; the short form has the same share of it as of the default."""
    return max(1, in_long_form * settings().max_examples // 100)
