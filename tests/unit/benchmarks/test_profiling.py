"""What a profile says about where the time goes."""

import json
from pathlib import Path

from benchmarks.profiling import summary, times

FRAMES = [
    {"name": "main", "file": "app.py"},
    {"name": "decode", "file": "codec.py"},
    {"name": "append", "file": "log.py"},
]
DOCUMENT = {
    "shared": {"frames": FRAMES},
    "profiles": [
        {"samples": [[0, 1], [0, 1, 1], [0, 2], []], "weights": [0.5, 0.25, 0.25, 9.0]},
        {"samples": [[0]], "weights": [1.0]},
    ],
}


def test_a_function_has_its_own_time_and_that_of_its_callees_once_however_deep_it_recurs() -> None:
    own, total = times(DOCUMENT)
    assert own == {"decode (codec.py)": 0.75, "append (log.py)": 0.25, "main (app.py)": 1.0}
    assert total == {"main (app.py)": 2.0, "decode (codec.py)": 0.75, "append (log.py)": 0.25}


def test_a_summary_names_each_profile_and_its_busiest_functions_first(tmp_path: Path) -> None:
    (tmp_path / "rpc.json").write_text(json.dumps(DOCUMENT))
    head, *lines = summary(tmp_path)
    assert head == f"{tmp_path / 'rpc.json'}: 2.0 s of work"
    assert [line.split()[-2] for line in lines] == ["main", "decode", "append"]
