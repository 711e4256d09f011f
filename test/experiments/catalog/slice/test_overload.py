import math

import pytest

from timely_llm.core.slo import REAL_TIME, VOICE
from timely_llm.experiments.catalog.slice.overload import lateness
from timely_llm.experiments.registry import experiment
from timely_llm.experiments.virtual.outcome import ConversationOutcome
from timely_llm.experiments.virtual.slice_workload import talk


def outcome(kind: object, *times_s: float, finished: bool = True) -> ConversationOutcome:
    asked = talk("one", REAL_TIME if kind == "machine" else VOICE, 10.0, 2, 160, 60)
    return ConversationOutcome(asked, finished, tuple(10.0 + s for s in times_s), 0.0)


def test_lateness_is_counted_from_the_deadline_and_from_asking() -> None:
    found = lateness(
        [
            outcome("machine", 0.5, 1.0),
            outcome("machine", 1.0, 4.5),
            outcome("person", 7.0, 8.0),
            outcome("person", 0.5, 9.0),
        ]
    )
    assert found == {
        "max_ttft_s": pytest.approx(7.0),
        "rt_late_share": 0.5,
        "max_late_s": pytest.approx(3.0),
    }
    assert all(math.isnan(value) for value in lateness([]).values())
    assert math.isnan(lateness([outcome("machine", 0.5, finished=False)])["max_late_s"])


def test_an_overload_lasts_for_twenty_minutes_unless_another_time_is_given() -> None:
    found = experiment("slice-overload")
    assert (found.defaults.minutes, found.defaults.rates) == (20.0, (2.0,))
    options = found.options(policies=("orca", "slice"), seeds=1, minutes=1.0, rates=(4.0,), jobs=1)
    made = found.run(options, lambda done, total: None)
    orca, slice_ = made.rows
    assert "1 minutes" in str(made.setup["workload"])
    assert float(orca["max_ttft_s"] or 0) < float(slice_["max_ttft_s"] or 0), "Orca defers none"
    assert float(orca["rt_late_share"] or 0) > float(slice_["rt_late_share"] or 0)
    assert set(made.measures) <= made.definitions.keys()
