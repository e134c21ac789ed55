"""The archive of classes with which a Kafka starts faster fits the class paths it is used on."""

import subprocess

import pytest

from tests.support.processes import java_env


@pytest.mark.parametrize("with_ours", [False, True], ids=["a broker", "our programs"])
def test_a_jvm_on_kafkas_jars_takes_its_classes_from_the_archive(with_ours: bool) -> None:
    if not java_env.archive("broker").exists():
        java_env.missing("the archive of classes was not made")
    command = java_env.quick_jvm("broker", "-Xlog:class+load:stdout")
    assert command[-2] == "-cp"
    command[-1] = java_env.classpath("broker", with_ours=with_ours)
    ended = subprocess.run(
        [*command, "kafka.tools.StorageTool", "random-uuid"],
        check=True,
        capture_output=True,
        text=True,
    )
    (loaded,) = (line for line in ended.stdout.splitlines() if " kafka.server.KafkaConfig " in line)
    assert loaded.endswith("source: shared objects file (top)")
    assert "archive" not in ended.stderr
