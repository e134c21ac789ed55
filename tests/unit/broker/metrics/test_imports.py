"""The start of a broker must not pay for what the first scrape needs."""

import subprocess
import sys


def test_counting_and_serving_import_neither_prometheus_client_nor_h11() -> None:
    script = (
        "import sys\n"
        "import broker.metrics.broker_metrics, broker.metrics.page, broker.http.server\n"
        "import broker.http.health\n"
        "print([name for name in ('prometheus_client', 'h11') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
