"""The state diagram of a classic group in docs/ARCHITECTURE.md, from the table in the code.

`make docs` puts it between the two marks. A move that the table has gained needs its reason here,
so that the table is not extended without saying when the move is made.
"""

from pathlib import Path
from typing import Final

from kohort.groups.classic.states import LEGAL_PREVIOUS, ClassicState

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "docs" / "ARCHITECTURE.md"
BEGIN: Final = "<!-- made from groups/classic/states.py by `make docs` -->\n"
END: Final = "<!-- end of what is made -->\n"

_EMPTY, _PREPARING = ClassicState.EMPTY, ClassicState.PREPARING_REBALANCE
_COMPLETING, _STABLE = ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE
_CHANGE: Final = "a member comes, goes, changes or stays silent"
_UNLOADED: Final = "unloaded"

REASONS: Final = {
    (_EMPTY, _PREPARING): "a member joins",
    (_PREPARING, _COMPLETING): "all have joined, or time is up",
    (_PREPARING, _EMPTY): "no member is left",
    (_COMPLETING, _STABLE): "the leader's assignment is durable",
    (_COMPLETING, _PREPARING): f"{_CHANGE}, or the assignment cannot be stored",
    (_STABLE, _PREPARING): _CHANGE,
    (_EMPTY, ClassicState.DEAD): "deleted, expired or unloaded",
    (_PREPARING, ClassicState.DEAD): _UNLOADED,
    (_COMPLETING, ClassicState.DEAD): _UNLOADED,
    (_STABLE, ClassicState.DEAD): _UNLOADED,
}


def diagram() -> str:
    """The diagram, in the language that code hosts draw."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {_EMPTY.value}: created or restored"]
    lines.append(f"    [*] --> {_STABLE.value}: restored with members")
    for state in ClassicState:
        lines += [
            f"    {state.value} --> {following.value}: {REASONS[state, following]}"
            for following in ClassicState
            if state in LEGAL_PREVIOUS[following]
        ]
    return "\n".join([*lines, "```", ""])


def renew(text: str) -> str:
    """The document with the diagram as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{diagram()}{END}{after}"
