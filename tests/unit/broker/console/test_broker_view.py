"""The settings that the console shows."""

from kohort.broker.config.current import ConfigEntry, ConfigSource
from kohort.broker.config.settings import HIDDEN, ConfigType
from kohort.broker.console.broker_view import wait_configs
from kohort.broker.runtime.slices import Slice
from kohort.testing.virtual_clock import VirtualClock


async def test_secrets_are_hidden_and_settings_are_sorted() -> None:
    def entry(name: str, config_type: ConfigType) -> ConfigEntry:
        return ConfigEntry(name, "value", ConfigSource.STATIC_BROKER, False, config_type, (), "")

    entries = [entry("z", ConfigType.STRING), entry("a.password", ConfigType.PASSWORD)]
    shown = await wait_configs(entries, Slice(VirtualClock()))
    assert [(config["name"], config["value"]) for config in shown] == [
        ("a.password", HIDDEN),
        ("z", "value"),
    ]
