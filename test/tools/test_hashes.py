"""The hashes of pinned versions: which files count, and that each pinned version has some."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tools.hashes import files_in, fitting_tags, hashes, pins
from tools.package_index import PackageIndexError

ROOT = Path(__file__).parents[2]
CONSTRAINTS = sorted(path.name for path in ROOT.glob("constraints*.txt"))


def listed(*names: str) -> list[dict[str, Any]]:
    return [{"filename": name, "hashes": {"sha256": name}} for name in names]


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_each_pinned_version_has_hashes_and_nothing_else_has(name: str) -> None:
    text = (ROOT / ".ci/hashes" / name).read_text()
    found = re.findall(r"^(\S+==\S+)((?: \\\n  --hash=sha256:[0-9a-f]{64})+)$", text, re.MULTILINE)
    pinned = pins((ROOT / name).read_text())
    assert pinned
    assert [one for one, _ in found] == [f"{package}=={version}" for package, version in pinned]
    assert len(re.findall("==", text)) == len(found)


def test_files_count_that_fit_the_machine_of_the_checks() -> None:
    fits = [
        "a-1.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "a-1.2-cp39-abi3-manylinux_2_28_x86_64.whl",
        "a-1.2-py3-none-any.whl",
        "a-1.2+cpu-cp311-cp311-linux_x86_64.whl",
    ]
    others = [
        "a-1.2-cp312-cp312-manylinux_2_28_x86_64.whl",
        "a-1.2-cp311-cp311-win_amd64.whl",
        "a-1.2-cp311-cp311-manylinux_2_28_aarch64.whl",
        "a-1.2-cp311-cp311-musllinux_1_2_x86_64.whl",
        "a-1.3-py3-none-any.whl",
        "a-1.2.tar.gz",
        "a-1.2.exe",
    ]
    found = hashes("a", Version("1.2"), listed(*fits, *others), fitting_tags())
    assert found == sorted(fits)


def test_where_there_is_no_wheel_the_source_distribution_counts() -> None:
    files = listed("a-1.2.tar.gz", "a-1.1.tar.gz", "a-1.2-cp311-cp311-win_amd64.whl")
    assert hashes("a", Version("1.2"), files, fitting_tags()) == ["a-1.2.tar.gz"]
    with pytest.raises(PackageIndexError, match=r"no file of a 2\.0 fits"):
        hashes("a", Version("2.0"), files, fitting_tags())


def test_wheels_of_a_folder_count(tmp_path: Path) -> None:
    (tmp_path / "a_b-1.2-py3-none-any.whl").write_bytes(b"")
    (tmp_path / "other-1.2-py3-none-any.whl").write_bytes(b"")
    (found,) = files_in(tmp_path, "a-b")
    assert found["hashes"]["sha256"].startswith("e3b0c44298fc1c14")
