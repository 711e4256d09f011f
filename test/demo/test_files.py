from __future__ import annotations

from pathlib import Path

from timely_llm.demo.files import Files


def test_a_run_finds_its_files_again(tmp_path: Path) -> None:
    several = Files.fresh(tmp_path, "fcfs-segments", ["s1", "s2"])
    one = Files.fresh(tmp_path, "deadline")
    assert Files.found(tmp_path) == [one, several]
    assert list(several.all_logs.values()) == ["", "", "s1", "s2"]
    assert list(one.all_logs.values()) == ["", "", ""]


def test_a_run_with_one_server_leaves_nothing_of_an_earlier_one_with_several(
    tmp_path: Path,
) -> None:
    earlier = Files.fresh(tmp_path, "edf", ["s1", "s2"])
    other = Files.fresh(tmp_path, "deadline", ["s1"])
    later = Files.fresh(tmp_path, "edf")
    assert not any(path.exists() for path in earlier.event_logs.values())
    assert Files.found(tmp_path) == [other, later]
