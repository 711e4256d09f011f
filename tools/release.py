"""Whether the source tree can be tagged as a release; `make release-check`.

Prints a sentence for each thing that is missing. What only the owner knows stands in it as it was
written for the owner to fill: the maintainer and the addresses of the project, and the day.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PLACEHOLDER = "example.com"
MANIFESTS = ("package.xml", "examples/cpp/package.xml")
URLS = ("Homepage", "Issues")
HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<day>.+))?$", re.MULTILINE)


def versions(root: Path) -> dict[str, str]:
    """Return the version that each file says."""
    package = (root / "timely_llm/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    with (root / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    return {
        "pyproject.toml": project["version"],
        **{
            file: ElementTree.parse(root / file).findtext("version") or "none" for file in MANIFESTS
        },
        "timely_llm/__init__.py": found[1] if found else "none",
        "CHANGELOG.md": next((v for v, _ in sections(root) if v != "Unreleased"), "none"),
    }


def sections(root: Path) -> list[tuple[str, str]]:
    """Return the versions of the change log, newest first, each with its day."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return [(found["version"], found["day"] or "") for found in HEADING.finditer(text)]


def problems(root: Path) -> Iterator[str]:
    """Yield a sentence for each thing in the files that a release must not have."""
    said = versions(root)
    if len(set(said.values())) > 1:
        words = ", ".join(f"{file} says {version}" for file, version in said.items())
        yield f"the versions differ: {words}"
    yield from _log_problems(root, said["pyproject.toml"])
    manifest = ElementTree.parse(root / "package.xml")
    for maintainer in manifest.iterfind("maintainer"):
        if PLACEHOLDER in (email := maintainer.get("email", "")):
            yield f"package.xml: the maintainer is {email}: write the name and address of yours"
    if manifest.find("url") is None:
        yield "package.xml: there is no <url>: write where the project is"
    with (root / "pyproject.toml").open("rb") as file:
        urls = tomllib.load(file)["project"].get("urls", {})
    if missing := [name for name in URLS if name not in urls]:
        yield f"pyproject.toml: [project.urls] lacks {' and '.join(missing)}: write where they are"


def _log_problems(root: Path, version: str) -> Iterator[str]:
    found = sections(root)
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if "Unreleased" in (names := [name for name, _ in found]):
        after = text.split("## [Unreleased]", 1)[1]
        if after.split("\n## ", 1)[0].strip():
            yield f"CHANGELOG.md: [Unreleased] has lines: move them to [{version}]"
    if version not in names:
        return
    day = dict(found)[version]
    try:
        date.fromisoformat(day)
    except ValueError:
        yield f"CHANGELOG.md: [{version}] has the day {day!r}: write the date of the release"


def tag_problems(root: Path) -> Iterator[str]:
    """Yield a sentence for each thing in the repository that a tag must not have."""
    tag = f"v{versions(root)['pyproject.toml']}"
    if changed := _git(root, "status", "--porcelain").splitlines():
        yield f"{len(changed)} files are not committed: commit them before the tag {tag}"
    tagged, head = (
        _git(root, "rev-list", "-n", "1", f"refs/tags/{tag}"),
        _git(root, "rev-parse", "HEAD"),
    )
    if tagged and tagged != head:
        yield f"the tag {tag} is at {tagged[:10]}, not here at {head[:10]}: raise the version"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> int:
    """Print what is missing, or how to go on, and return the exit status."""
    found = [*problems(ROOT), *tag_problems(ROOT)]
    for sentence in found:
        print(sentence, file=sys.stderr)
    if found:
        return 1
    tag = f"v{versions(ROOT)['pyproject.toml']}"
    print(f"ready: make wheels, then git tag --annotate {tag}, then publish dist/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
