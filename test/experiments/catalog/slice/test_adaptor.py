import pytest

from timely_llm.experiments.catalog.slice.adaptor import SETTINGS
from timely_llm.experiments.policy_spec import parse
from timely_llm.experiments.registry import experiment


def test_each_adaptor_is_on_in_a_row_and_off_in_another() -> None:
    off = vars(parse("slice").make())
    changed = [
        {name for name, value in vars(parse(text).make()).items() if name in parse(text).values
         and value != off[name]}
        for text in SETTINGS
    ]  # fmt: skip
    assert set[str]() in changed
    assert set[str]().union(*changed) == {"half_life_tokens", "keep"}
    assert {"half_life_tokens", "keep"} in changed


def test_adaptors_change_what_is_met_under_overload() -> None:
    found = experiment("slice-adaptor")
    options = found.options(seeds=1, rates=(4.0,), minutes=0.5, jobs=1)
    made = found.run(options, lambda done, total: None)
    by_policy = {row["policy"]: row for row in made.rows}
    assert by_policy.keys() == SETTINGS.keys()
    assert len({row["completion_s"] for row in made.rows}) > 1
    assert all(row["share_served"] == pytest.approx(1.0) for row in made.rows)
    assert sum(note.startswith("`slice") for note in made.notes) == len(SETTINGS)
