"""Kafka's command line classes, as an operator calls them."""

from dataclasses import dataclass

from tests.support.processes.java_process import JavaProcess


@dataclass(frozen=True, slots=True)
class ToolResult:
    exit: int
    out: str
    err: str


class Tools:
    """Each method is one of Kafka's bin/kafka-*.sh; arguments are those of its command line."""

    def __init__(self, bootstrap: str, process: JavaProcess) -> None:
        self._bootstrap = bootstrap
        self._process = process

    def console_producer(self, *arguments: str, stdin: str) -> str:
        return self.run("org.apache.kafka.tools.ConsoleProducer", *arguments, stdin=stdin)

    def console_consumer(self, *arguments: str) -> str:
        return self.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments)

    def run(self, name: str, *arguments: str, stdin: str = "") -> str:
        """Standard output; a failure of the tool is a failure of the test."""
        result = self.attempt(name, *arguments, stdin=stdin)
        assert result.exit == 0, f"{name} exited with {result.exit}:\n{result.out}\n{result.err}"
        return result.out

    def attempt(self, name: str, *arguments: str, stdin: str = "") -> ToolResult:
        args = ("--bootstrap-server", self._bootstrap, *arguments)
        answer = self._process.call(**{"class": name}, args=args, stdin=stdin)
        return ToolResult(**answer)
