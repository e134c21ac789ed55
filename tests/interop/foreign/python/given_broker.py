"""A plugin for kafka-python's own tests: in the place of the Kafkas that its fixtures would start
is the broker of GIVEN_BROKER, and who names no other way comes through TLS and SCRAM.
"""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from kafka import KafkaAdminClient

GIVEN: dict[str, Any] = json.loads(os.environ["GIVEN_BROKER"])


class GivenBroker:
    """Stands for a Kafka that has been started, with a listener of the kind that is wanted."""

    def __init__(self, transport: str, sasl_mechanism: str | None, partitions: int) -> None:
        self.host, self.port = "localhost", GIVEN["ports"][transport]
        self.transport, self.sasl_mechanism = transport, sasl_mechanism
        self.replicas, self.partitions = 1, partitions
        # With the authority's certificate as ca-cert.
        self.ssl_dir = str(Path(GIVEN["authority"]).parent)
        # What has their logs.
        self.zookeeper = self.child = self

    @classmethod
    def instance(
        cls,
        _broker_id: int,
        *,
        transport: str = "SASL_SSL",
        sasl_mechanism: str | None = None,
        partitions: int = 4,
        tmp_dir: object = None,
    ) -> Self:
        if transport == "SASL_SSL":
            sasl_mechanism = "SCRAM-SHA-512"
        return cls(transport, sasl_mechanism, partitions)

    def _enrich_client_params(self, params: dict[str, Any], **defaults: object) -> dict[str, Any]:
        found = {
            **defaults,
            "bootstrap_servers": f"{self.host}:{self.port}",
            "security_protocol": self.transport,
        }
        if self.sasl_mechanism:
            found["sasl_mechanism"] = self.sasl_mechanism
            found["sasl_plain_username"] = GIVEN["user"]
            found["sasl_plain_password"] = GIVEN["password"]
        if self.transport.endswith("SSL"):
            found["ssl_cafile"] = GIVEN["authority"]
            # Theirs is for another name than the one they come by.
            found["ssl_check_hostname"] = False
        return found | params

    def get_topic_names(self) -> list[str]:
        """Asks as the tests do; as published, Kafka's own command is asked."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            return list(admin.list_topics())

    def start(self) -> None:
        """Does nothing: it runs."""

    close = dump_logs = start


import_module("test.integration.fixtures").KafkaFixture.instance = GivenBroker.instance
