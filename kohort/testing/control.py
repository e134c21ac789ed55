"""The test kit over HTTP, for tests in other languages: `kohort testing serve`.

Each request is a POST with a JSON object; its path is the name of the Python call, and the response
is the result. Only for tests on the same machine: it listens on localhost. Requests of web pages
are rejected by their Host header or by their Content-Type: browsers do not let a page send JSON to
another origin without that origin's permission.
"""

import base64
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from kohort.client.core.records import RawRecord
from kohort.groups.history.json_form import as_json
from kohort.protocol.errors import KafkaError
from kohort.testing.kafka import Kafka, KafkaFault
from kohort.testing.kit.machine import HOST

BODY_BYTES_MAX: Final = 16 * 1024 * 1024
BROKERS_MAX: Final = 1_000
HOSTS: Final = frozenset({"127.0.0.1", "localhost"})
JSON_TYPE: Final = "application/json"

Json = dict[str, Any]


class ControlError(Exception):
    """A request cannot be executed; has the HTTP status."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class ControlledBroker:
    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self._faults: dict[int, KafkaFault] = {}
        self._fault_number = 0
        self._lock = threading.Lock()

    def answer(self, parts: list[str], body: Json) -> Json:
        """Execute the call named by the rest of the path. Raises the call's errors."""
        answer: Json = {}
        match parts:
            case ["create_topic"]:
                self.kafka.create_topic(**body)
            case ["produce"]:
                body["value"], body["key"] = _content(body.get("value")), _content(body.get("key"))
                answer = self.kafka.produce(**body)._asdict()
            case ["records"]:
                answer["records"] = [_record(item) for item in self.kafka.records(**body)]
            case ["groups", name, action]:
                answer = self._answer_group(name, action, body)
            case ["faults"]:
                answer["id"] = self._add_fault(self.kafka.fault(**body))
            case ["faults", number, "hits"]:
                answer["hits"] = self._fault(number).hits
            case ["faults", number, "end"]:
                fault = self._fault(number)
                del self._faults[int(number)]
                fault.__exit__()
                answer["hits"] = fault.hits
            case [("restart" | "stop" | "start" | "crash" | "fill_disk" | "free_disk") as action]:
                getattr(self.kafka, action)(**body)
            case _:
                raise ControlError(HTTPStatus.NOT_FOUND, f"unknown path {'/'.join(parts)}")
        return answer

    def _answer_group(self, name: str, action: str, body: Json) -> Json:
        group = self.kafka.group(name)
        answer: Json = {}
        match action:
            case "wait":
                group.wait(**body)
            case "describe":
                members = [asdict(member) for member in group.members]
                answer = {"state": group.state, "lag": group.lag, "members": members}
            case "rebalances":
                answer["rebalances"] = [as_json(item) for item in group.rebalances]
            case "why":
                answer["why"] = group.why
            case "expire":
                answer["members"] = group.expire(**body)
            case "remove":
                answer["members"] = group.remove(**body)
            case "enforce":
                group.enforce(**body)
            case "hold_join":
                answer["id"] = self._add_fault(group.hold_join(**body))
            case _:
                raise ControlError(HTTPStatus.NOT_FOUND, f"unknown action {action} of a group")
        return answer

    def _add_fault(self, fault: KafkaFault) -> int:
        fault.__enter__()
        with self._lock:
            self._fault_number += 1
            self._faults[self._fault_number] = fault
            return self._fault_number

    def _fault(self, number: str) -> KafkaFault:
        fault = self._faults.get(int(number)) if number.isdigit() else None
        if fault is None:
            raise ControlError(HTTPStatus.NOT_FOUND, f"unknown fault {number}")
        return fault

    def close(self) -> None:
        for fault in self._faults.values():
            fault.__exit__()
        self._faults.clear()
        self.kafka.close()


class Control:
    """The HTTP port, and the brokers that its requests create; one exists from the start."""

    def __init__(self, port: int, settings: Mapping[str, object], *, kafka_port: int = 0) -> None:
        """Start the first broker. Raises OSError, StartError, ConfigError."""
        self._brokers: dict[int, ControlledBroker] = {}
        self._number = 0
        self._lock = threading.Lock()
        control = self

        class Handler(_Handler):
            answer = staticmethod(control.answer)

        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True
        try:
            self.first = self._add(settings, kafka_port).kafka
        except BaseException:
            self._server.server_close()
            raise

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def serve(self) -> None:
        """Serve until `shutdown`, which another thread calls."""
        self._server.serve_forever(poll_interval=0.05)

    def shutdown(self) -> None:
        self._server.shutdown()

    def close(self) -> None:
        """Close the port and all brokers."""
        self._server.server_close()
        with self._lock:
            brokers, self._brokers = list(self._brokers.values()), {}
        for broker in brokers:
            broker.close()

    def answer(self, path: str, body: Json) -> Json:
        """Return the response to a request. Raises ControlError, or the call's errors."""
        parts = [part for part in path.split("/") if part]
        if parts == ["brokers"]:
            added = self._add(body.get("settings", {}))
            return {"id": self._number, "bootstrap_servers": added.kafka.bootstrap_servers}
        if len(parts) < 2 or parts[0] != "brokers" or not parts[1].isdigit():
            raise ControlError(HTTPStatus.NOT_FOUND, f"unknown path {path}")
        number = int(parts[1])
        broker = self._brokers.get(number)
        if broker is None:
            raise ControlError(HTTPStatus.NOT_FOUND, f"unknown broker {number}")
        if parts[2:] == []:
            return {"id": number, "bootstrap_servers": broker.kafka.bootstrap_servers}
        if parts[2:] == ["close"]:
            with self._lock:
                self._brokers.pop(number, None)
            broker.close()
            return {}
        return broker.answer(parts[2:], body)

    def _add(self, settings: Mapping[str, object], port: int = 0) -> ControlledBroker:
        with self._lock:
            if len(self._brokers) >= BROKERS_MAX:
                raise ControlError(
                    HTTPStatus.TOO_MANY_REQUESTS, f"at most {BROKERS_MAX} brokers can run"
                )
            broker = ControlledBroker(Kafka(settings, port=port).open())
            self._number += 1
            self._brokers[self._number] = broker
            return broker


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[str, Json], Json]

    def do_POST(self) -> None:
        try:
            outcome = type(self).answer(self.path, self._body())
        except ControlError as error:
            self._send(error.status, {"error": str(error)})
        except TimeoutError as error:
            self._send(HTTPStatus.REQUEST_TIMEOUT, {"error": str(error)})
        except KafkaError as error:
            self._send(HTTPStatus.CONFLICT, {"error": str(error), "code": error.code.name})
        except LookupError as error:
            self._send(HTTPStatus.NOT_FOUND, {"error": str(error)})
        except Exception as error:  # noqa: BLE001 - reported to the test.
            self._send(HTTPStatus.BAD_REQUEST, {"error": f"{type(error).__name__}: {error}"})
        else:
            self._send(HTTPStatus.OK, outcome)

    def _body(self) -> Json:
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
        if host not in HOSTS:
            self.close_connection = True
            raise ControlError(HTTPStatus.FORBIDDEN, f"this is not {host}")
        if self.headers.get_content_type() != JSON_TYPE:
            self.close_connection = True
            raise ControlError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {JSON_TYPE}")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            raise ControlError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"up to {BODY_BYTES_MAX} bytes")
        body = json.loads(self.rfile.read(int(length)) or b"{}")
        if not isinstance(body, dict):
            raise ControlError(HTTPStatus.BAD_REQUEST, "send a JSON object")
        return body

    def _send(self, status: HTTPStatus, answer: Json) -> None:
        content = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", JSON_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in http.server.
        """Log nothing: the output belongs to the test."""


def _content(value: object) -> bytes | str | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    if value is None or isinstance(value, str):
        return value
    raise ControlError(
        HTTPStatus.BAD_REQUEST, 'a key or value must be text, {"base64": ...} or null'
    )


def _as_text(content: bytes | None) -> object:
    """Return the content as text if it is valid UTF-8, otherwise as {"base64": text}."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _record(record: RawRecord) -> Json:
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _as_text(record.key),
        "value": _as_text(record.value),
        "headers": [[name, _as_text(value)] for name, value in record.headers],
    }
