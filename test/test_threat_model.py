"""Each threat that docs/threat_model.md calls held is shown by a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/threat_model.md"


def test_each_named_test_exists() -> None:
    named = re.findall(r"`(test/[\w/]+\.py)::(\w+)`", DOCUMENT.read_text())
    assert len(named) > 10
    for file, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), name


def test_a_threat_without_a_test_is_one_that_does_not_hold() -> None:
    rows = re.findall(
        r"^\| (?!threat|-)(.+) \|$", DOCUMENT.read_text().split("## Threats")[1], re.M
    )
    untested = [row for row in rows if "`test/" not in row]
    assert all("**Does not hold**" in row for row in untested)
