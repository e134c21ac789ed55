"""The broker's configuration: settings declared once, under Kafka's own names."""

from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.load import ConfigError, GivenValue, LoadedConfig, load
from kohort.broker.config.network import Endpoint
from kohort.broker.config.topic import TopicConfig

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "Endpoint",
    "GivenValue",
    "LoadedConfig",
    "TopicConfig",
    "load",
]
