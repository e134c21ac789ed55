"""A health page and metrics beside a consumer.

    python examples/health_page.py localhost:9092 orders audit 8080

`GET /live` and `GET /ready` are 200 or 503, for Kubernetes' probes, `GET /health` for people; all
say why, in a sentence and in figures. `GET /metrics` is for Prometheus, under the names of Java's
consumer.
"""

import asyncio
import json
import sys

from prometheus_client import CollectorRegistry, generate_latest

from kohort import Consumer, ConsumerCollector


async def answer(
    consumer: Consumer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """One request; in a real service your web framework does this."""
    path = (await reader.readline()).split()[1:2]
    status, body = "404 Not Found", b"/live, /ready, /health or /metrics"
    health = consumer.health()
    checks = {b"/live": health.is_alive, b"/ready": health.is_ready, b"/health": health.is_healthy}
    if path and path[0] in checks:
        status = "200 OK" if checks[path[0]] else "503 Service Unavailable"
        body = json.dumps(health.as_dict(), indent=1).encode()
    elif path == [b"/metrics"]:
        registry = CollectorRegistry()
        registry.register(ConsumerCollector(consumer))
        status, body = "200 OK", generate_latest(registry)
    writer.write(f"HTTP/1.0 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


async def main(bootstrap: str, topic: str, group: str, port: str) -> None:
    consumer = Consumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    )
    async with consumer:
        server = await asyncio.start_server(
            lambda reader, writer: answer(consumer, reader, writer),
            "0.0.0.0",  # noqa: S104 - Kubernetes probes the address of the pod.
            int(port),
        )
        async with server:
            print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/health", flush=True)
            async for record in consumer:
                print(record.value, flush=True)


asyncio.run(main(*sys.argv[1:5]))
