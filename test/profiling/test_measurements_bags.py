"""Executions are read from bags of segments and reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from rosbags.rosbag2 import StoragePlugin

from test.profiling.bag_writer import BagWriter
from test.skills.plans import DRONE
from timely_llm.core.errors import ConfigurationError
from timely_llm.profiling.measurements import Measurement, is_bag, read_bag
from timely_llm.resources import resource
from timely_llm.skills.skill_set import load_skill_set

ARM = load_skill_set(resource("config/skill_sets/arm.yaml"))


@pytest.mark.parametrize("storage", list(StoragePlugin))
def test_a_segment_and_its_report_are_one_execution(tmp_path: Path, storage: StoragePlugin) -> None:
    with BagWriter(tmp_path / "bag", storage) as bag:
        bag.plan(DRONE, "one", "mf(100);?s('red cup'){g('red cup');}", [2.7, 4.5, 2.4])
        bag.plan(DRONE, "two", "mf(200);", [3.4])
    found = read_bag(tmp_path / "bag", DRONE)
    assert found.measurements == (
        Measurement("mf", (100,), 2.7),
        Measurement("s", ("red cup",), 4.5),
        Measurement("g", ("red cup",), 2.4),
        Measurement("mf", (200,), 3.4),
    )
    assert found.left_out == {}
    (file,) = [path for path in (tmp_path / "bag").iterdir() if is_bag(path)]
    assert read_bag(file, DRONE) == found


def test_what_is_not_sure_is_left_out(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bag") as bag:
        bag.plan(DRONE, "one", "mf(100);", [2.7])
        bag.finished("one", 0, 99.0)  # reported twice
        bag.plan(DRONE, "loop", "4{mf(100)}", [10.1])
        bag.plan(DRONE, "choice", "?s('a')|s('b'){mf(10);}", [1.6, 0.0])
        bag.plan(ARM, "arm", "pick('pen');", [3.1])
        bag.finished("lost", 0, 1.0)
    found = read_bag(tmp_path / "bag", DRONE)
    assert found.measurements == (Measurement("mf", (100,), 2.7),)
    assert found.left_out == {
        "segments with calls that may not have been made, or more than once": 2,
        "segments that were skipped or have no duration": 1,
        "segments with skills that drone does not have (pick)": 1,
        "reports without their segment in the bag": 1,
    }


def test_a_bag_without_executions_is_named(tmp_path: Path) -> None:
    with BagWriter(tmp_path / "bag") as bag:
        bag.finished("lost", 0, 1.0)
    with pytest.raises(ConfigurationError, match=r"no executions of drone: 0 segments, 1 FINISHED"):
        read_bag(tmp_path / "bag", DRONE)


@pytest.mark.parametrize("storage", list(StoragePlugin))
def test_a_bag_that_is_cut_off_gets_one_sentence(tmp_path: Path, storage: StoragePlugin) -> None:
    with BagWriter(tmp_path / "bag", storage) as bag:
        for number in range(200):
            bag.plan(DRONE, f"r{number}", "mf(100);", [2.7])
    (file,) = [path for path in (tmp_path / "bag").iterdir() if is_bag(path)]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    for path in (file, tmp_path / "bag"):
        with pytest.raises(ConfigurationError, match="cannot read the bag") as error:
            read_bag(path, DRONE)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"SQLite format 3\0"])
@pytest.mark.parametrize("name", ["a.mcap", "a.db3"])
def test_what_is_no_bag_gets_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"cannot read the bag|lacks one of the"):
        read_bag(tmp_path / name, DRONE)
    with pytest.raises(ConfigurationError, match="cannot read the bag"):
        read_bag(tmp_path, DRONE)
