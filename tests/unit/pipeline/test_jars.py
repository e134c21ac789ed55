"""The list of jars, and that nothing else than what is listed is ever used."""

from pathlib import Path

import pytest

from kohort.pipeline import jars
from kohort.pipeline.errors import UnavailableError
from kohort.pipeline.java import find_java

pyspark = pytest.importorskip("pyspark")


@pytest.mark.parametrize("version", ["4.0.1", "4.0.2", "4.1.4", "4.2.0"])
def test_connector_and_delta_are_those_for_the_spark_that_is_installed(version: str) -> None:
    release = version.rpartition(".")[0]
    by_artifact = {jar.artifact: jar for jar in jars.locked(spark=version)}
    assert by_artifact["spark-sql-kafka-0-10_2.13"].version.rpartition(".")[0] == release
    delta = [artifact for artifact in by_artifact if artifact.startswith("delta-spark")]
    assert delta == [f"delta-spark_{release}_2.13"]
    assert len(by_artifact) == len(jars.locked())


def test_jars_for_s3_are_of_the_hadoop_of_one_spark_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = jars.locked
    monkeypatch.setattr(jars, "locked", lambda lock=jars.LOCK: listed(lock, "4.1.4"))
    with pytest.raises(UnavailableError, match="no jars for lakes under s3a://"):
        jars.ensure(tmp_path, with_s3=True)


def test_no_jar_is_listed_that_spark_brings_itself() -> None:
    own = {path.name for path in Path(pyspark.__file__).with_name("jars").glob("*.jar")}
    artifacts = {name.rpartition("-")[0] for name in own}
    assert not artifacts & {jar.artifact for jar in jars.locked()}


def test_a_damaged_jar_is_not_taken_for_the_one_that_is_listed(tmp_path: Path) -> None:
    jar = jars.Jar("group", "artifact", "1", 5, "0" * 64)
    path = tmp_path / jar.file_name
    assert not jar.is_at(path)
    path.write_bytes(b"other")
    assert not jar.is_at(path)


def test_a_jar_that_another_than_the_listed_one_is_served_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = jars.Jar("org.example", "thing", "1", 5, "0" * 64)
    monkeypatch.setattr(jars, "locked", lambda lock=None: [wanted])
    served = tmp_path / "mirror" / "org.example" / "thing" / "1"
    served.mkdir(parents=True)
    (served / "thing-1.jar").write_bytes(b"other")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers><filesystem name="m">'
        f'<artifact pattern="{tmp_path}/mirror/[organisation]/[module]/[revision]/'
        '[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv(jars.IVY_SETTINGS, str(settings))
    place = tmp_path / "jars"
    try:
        find_java()
    except UnavailableError as error:
        pytest.skip(str(error))
    with pytest.raises(UnavailableError, match=r"thing-1\.jar is not the expected file"):
        jars.ensure(place)
    assert list(place.iterdir()) == []
