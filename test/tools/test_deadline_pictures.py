"""The pictures of docs/deadline.md come from the policy's own functions."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.image import imread

from timely_llm.policies.deadline.wave import wave_size
from timely_llm.resources import resource
from tools import deadline_pictures
from tools.deadline_pictures import ENGINE, NOW_S, PLANS, line_of_plans, step_time, total_worth

MOST_BYTES = 80_000
DOCS = resource("package.xml").parent / "docs"


def test_the_command_draws_the_pictures_that_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deadline_pictures.main([str(tmp_path)]) == 0
    page = (DOCS / "deadline.md").read_text(encoding="utf-8")
    for name in (PLANS, ENGINE):
        drawn, shown = tmp_path / name, DOCS / name
        assert f"]({name})" in page
        assert imread(drawn).shape[1] == imread(shown).shape[1]
        assert max(drawn.stat().st_size, shown.stat().st_size) < MOST_BYTES
    assert capsys.readouterr().out.count("Wrote ") == 2


def test_the_policy_takes_the_number_with_the_largest_total_worth() -> None:
    line = line_of_plans()
    numbers = range(1, len(line) + 1)
    taken = wave_size(line, NOW_S, step_time())
    assert taken == max(numbers, key=lambda number: (total_worth(line, number), number))
    assert 1 < taken < len(line), "a moment at which neither one nor all is best"


def test_a_folder_that_is_not_there_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deadline_pictures.main([str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("deadline_pictures: ") and error.count("\n") == 1
