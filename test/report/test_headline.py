import re
from datetime import UTC, datetime

import pytest

from test.report.runs import WRITTEN, simulated
from timely_llm.experiments.results.document import Row, RunDocument
from timely_llm.report.headline import attention, day, headline, percentage


def run_of(*rows: Row, keys: tuple[str, ...] = ("policy", "load")) -> RunDocument:
    return RunDocument(experiment="e", keys=keys, rows=rows)


def test_a_comparison_begins_with_date_policies_engine_and_the_best() -> None:
    run = simulated()
    said = headline(run, WRITTEN)
    assert said.startswith(
        "On 22 November 2026, small compared 2 policies (stream and timely) in 2 settings, 2 seeds"
        " each, on rtx4090-llama3-8b, 12 to 48 plans a run; "
    )
    assert " had the highest utility in " in said
    assert re.search(r" % of the plans of (stream|timely) were executed\.$", said)


def test_the_best_is_the_one_that_wins_most_settings() -> None:
    rows: list[Row] = [
        {"policy": name, "load": load, "utility": worth, "share_served": 1.0}
        for name, worths in (("a", (1.0, 1.0, 0.2)), ("b", (0.5, 0.5, 0.9)))
        for load, worth in enumerate(worths)
    ]
    assert headline(run_of(*rows), None) == (
        "e compared 2 policies (a and b) in 3 settings; a had the highest utility in 2 of 3"
        " settings, 0.733 in the mean; b had 0.633; 100 % of the plans of a were executed."
    )


def test_what_was_put_in_is_never_the_best() -> None:
    rows: list[Row] = [
        {"policy": name, "tpot_slo_ms": slo, "tpot_ms": ms}
        for name, slo, ms in (("a", 10.0, 90.0), ("b", 50.0, 40.0))
    ]
    run = run_of(*rows, keys=("policy",)).model_copy(
        update={"measures": ("tpot_slo_ms", "tpot_ms")}
    )
    assert "b had the shortest tpot, 40.00 ms; a had 90.00 ms" in headline(run, None)


def test_one_run_alone_is_not_compared() -> None:
    said = headline(run_of({"policy": "a", "load": 1, "utility": 1.5}), WRITTEN)
    assert said == "On 22 November 2026, e ran policy a in 1 setting; utility 1.500."


def test_settings_without_service_and_without_a_clear_best_need_attention() -> None:
    rows: list[Row] = [
        {"policy": name, "load": 1, "seed": seed, "utility": worth + seed, "share_served": share}
        for name, worth, share in (("a", 1.0, 0.6), ("b", 1.1, 1.0))
        for seed in (0, 1)
    ]
    served, close = attention(run_of(*rows))
    assert served == (
        "Not all plans were executed in 1 of 2 runs; the fewest with a: 60 %."
        " Times leave out the others."
    )
    assert close.startswith("In 1 of 1 setting the best utility is not clearly better")


@pytest.mark.parametrize(
    ("share", "shown"), [(0.0, "0 %"), (0.995, "over 99 %"), (1.0, "100 %"), (0.5, "50 %")]
)
def test_only_all_of_them_are_all_of_them(share: float, shown: str) -> None:
    assert percentage(share) == shown


def test_a_day_is_written_as_people_write_it() -> None:
    assert day(datetime(2026, 3, 1, tzinfo=UTC)) == "1 March 2026"
