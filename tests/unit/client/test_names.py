"""Names by which consumers and their loggers are told apart."""

import importlib
import logging
import pkgutil

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

import kohort.client
from kohort import Consumer, ConsumerCollector


def test_consumers_without_a_client_id_are_numbered() -> None:
    one, two = Consumer(), Consumer()
    name, _, number = one.config.client_id.rpartition("-")
    assert name == "kohort"
    assert two.config.client_id == f"kohort-{int(number) + 1}"
    assert Consumer(client_id="mine").config.client_id == "mine"
    assert one.health().client_id == one.config.client_id


def test_each_consumer_has_series_of_its_own() -> None:
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(Consumer(), Consumer()))
    registry.register(ConsumerCollector(Consumer()))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    samples = [one for family in families for one in family.samples]
    series = [(one.name, tuple(sorted(one.labels.items()))) for one in samples]
    assert len(series) == len(set(series))
    healthy = [one for one in samples if one.name == "kohort_consumer_healthy"]
    assert len({one.labels["client_id"] for one in healthy}) == 3


def test_all_loggers_of_the_consumer_are_below_one_name() -> None:
    names = set()
    for info in pkgutil.walk_packages(kohort.client.__path__, "kohort.client."):
        logger = getattr(importlib.import_module(info.name), "logger", None)
        if isinstance(logger, logging.Logger):
            names.add(logger.name)
            assert logger.name == info.name
    assert "kohort.client.group.member" in names
