"""A source tree that is not ready for a release says what is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import release

FILES = (*release.MANIFESTS, "pyproject.toml", "CHANGELOG.md", "timely_llm/__init__.py")


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    """A tree with all files as its owner completes them."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    version = release.versions(tmp_path)["pyproject.toml"]
    replace(tmp_path / "package.xml", "maintainers@example.com", "ann@robots.org")
    replace(tmp_path / "package.xml", "<license>", "<url>https://robots.org</url><license>")
    urls = (
        '[project.urls]\nHomepage = "https://robots.org"\nIssues = "https://robots.org/issues"\n\n'
    )
    replace(tmp_path / "pyproject.toml", "[project.scripts]", f"{urls}[project.scripts]")
    log = tmp_path / "CHANGELOG.md"
    released, _ = re.subn(r"(?s)^## \[Unreleased\].*?(?=^## )", "", log.read_text(), flags=re.M)
    log.write_text(released)
    day = dict(release.sections(tmp_path))[version]
    replace(tmp_path / "CHANGELOG.md", f"## [{version}] - {day}", f"## [{version}] - 2026-12-01")
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, file
    file.write_text(text.replace(old, new, 1))


def test_the_versions_of_this_tree_agree() -> None:
    assert len(set(release.versions(release.ROOT).values())) == 1


def test_what_is_the_owners_to_fill_is_named_until_it_is_filled(ready: Path) -> None:
    left = (
        "the maintainer is", "there is no <url>", "lacks Homepage and Issues", "has the day",
        "[Unreleased] has lines",
    )  # fmt: skip
    found = list(release.problems(release.ROOT))
    assert len(found) <= len(left)
    assert all(any(words in sentence for words in left) for sentence in found)
    assert list(release.problems(ready)) == []


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("package.xml", "<version>", "<version>9", "the versions differ: pyproject.toml says"),
        ("timely_llm/__init__.py", '= "', '= "9', "timely_llm/__init__.py says 9"),
        ("CHANGELOG.md", "## [", "## [9", "CHANGELOG.md says 9"),
        ("CHANGELOG.md", "2026-12-01", "soon", "has the day 'soon': write the date of the release"),
        ("CHANGELOG.md", "## [", "## [Unreleased]\n\n- New.\n\n## [", "[Unreleased] has lines"),
        ("package.xml", "robots.org", "example.com", "the maintainer is ann@example.com"),
        ("pyproject.toml", "Homepage", "Docs", "lacks Homepage:"),
    ],
)
def test_each_fault_has_a_sentence(ready: Path, file: str, old: str, new: str, words: str) -> None:
    replace(ready / file, old, new)
    assert words in "\n".join(release.problems(ready))


def test_a_tag_is_for_a_clean_tree_that_has_none_yet(ready: Path) -> None:
    def git(*words: str) -> None:
        owner = ("-c", "user.name=ann", "-c", "user.email=ann@robots.org")
        subprocess.run(["git", *owner, *words], cwd=ready, check=True, capture_output=True)

    git("init")
    assert "files are not committed" in "".join(release.tag_problems(ready))
    git("add", ".")
    git("commit", "--message", "all")
    assert list(release.tag_problems(ready)) == []
    version = release.versions(ready)["pyproject.toml"]
    git("tag", f"v{version}")
    assert list(release.tag_problems(ready)) == []
    git("commit", "--allow-empty", "--message", "more")
    assert "raise the version" in "".join(release.tag_problems(ready))
