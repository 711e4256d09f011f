import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.report.runs import simulated
from test.report.stages import BLOCKING, OVERLAPPING, in_stages
from timely_llm.experiments.results.document import Span, StepStages, TimelineDocument, TimelineStep
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.timeline import (
    Bar,
    EngineStep,
    Lane,
    Mark,
    StageSpan,
    Timeline,
    busier_half,
    due_mark,
    in_order,
    suspensions,
    ticks,
)

SAVED = TimelineDocument(
    name="t",
    requests=("a", "b", "c"),
    urgent=(False, True, False),
    spans=(
        Span(agent="robot_10", request=0, kind="waiting", start_s=1.0, end_s=2.0, label="x"),
        Span(agent="robot_10", request=0, kind="generating", start_s=1.1, end_s=1.3, label="2"),
        Span(agent="robot_10", request=0, kind="generating", start_s=1.9, end_s=2.0, label="1"),
        Span(agent="robot_10", request=0, kind="executing", start_s=2.0, end_s=4.0, label="mf(9)"),
        Span(agent="ann", request=2, kind="waiting", start_s=0.0, end_s=0.4),
        Span(agent="ann", request=2, kind="listening", start_s=0.4, end_s=5.0, label="9 tokens"),
        Span(agent="robot_9", request=1, kind="waiting", start_s=1.2, end_s=1.7),
    ),
    steps=(TimelineStep(start_s=1.5, duration_s=0.2, requests=(0, 1)),),
)


def test_robots_come_first_and_numbers_in_names_are_numbers() -> None:
    lanes = document_timeline(SAVED).lanes
    assert [lane.agent for lane in lanes] == ["robot_9", "robot_10", "ann"]
    people = [Lane(name, (Bar("listening", "answer", 0, 1),)) for name in ("p10", "p9")]
    robots = [Lane(name, (Bar("executing", "normal", 0, 1),)) for name in ("z", "a2", "a10")]
    assert [one.agent for one in in_order([*people, *robots])] == ["a2", "a10", "z", "p9", "p10"]


def test_a_run_document_becomes_bars_with_labels_and_tones() -> None:
    made = document_timeline(SAVED)
    assert {(bar.request, bar.tone) for bar in made.bars} == {
        ("a", "normal"), ("b", "urgent"), ("c", "answer"),
    }  # fmt: skip
    labels = {bar.label for bar in made.bars if bar.kind in ("executing", "listening")}
    assert labels == {"mf(9)", "9 tokens"}
    (kept,) = (bar for bar in made.bars if bar.kind == "suspended")
    assert (kept.start_s, kept.end_s, kept.request) == (1.3, 1.9, "a")
    assert made.steps == (EngineStep(1.5, 1.7, 2),)
    assert made.limits == (0.0, 5.0)


def test_every_span_of_a_run_is_a_bar() -> None:
    for saved in simulated().timelines:
        bars = document_timeline(saved).bars
        for kind in ("waiting", "generating", "executing", "listening"):
            count = sum(span.kind == kind for span in saved.spans)
            assert sum(bar.kind == kind for bar in bars) == count


def test_a_part_of_a_timeline_keeps_its_lanes() -> None:
    made = document_timeline(SAVED).shown(2.5, 3.0)
    assert [lane.agent for lane in made.lanes] == ["robot_9", "robot_10", "ann"]
    assert [bar.kind for bar in made.bars] == ["executing", "listening"]
    assert made.limits == (2.5, 3.0)
    assert made.steps == ()


def test_the_busier_half_is_where_most_bars_are() -> None:
    bars = [Bar("executing", "normal", at_s, at_s + 0.5) for at_s in range(0, 100, 10)]
    bars += [Bar("executing", "normal", 70 + n / 20, 70.01 + n / 20) for n in range(100)]
    whole = Timeline("t", (Lane("r", tuple(bars)),))
    part = busier_half(whole)
    low, high = part.limits
    assert high - low == pytest.approx(45.25)
    assert low <= 70 < 75 <= high
    assert len(part.bars) > 100
    assert part.lanes[0].agent == "r"


def test_a_due_time_is_missed_by_seconds_or_met() -> None:
    assert due_mark("urgent", 1.0, 0.9, "a").kind == "due, met"
    late = due_mark("urgent", 1.0, 1.25, "a", "mf(1)")
    assert (late.kind, late.late_s, late.at_s, late.label) == ("due, missed", 0.25, 1.0, "mf(1)")


def test_tokens_at_the_pace_of_a_listener_are_no_suspension() -> None:
    def bars(tone: str) -> list[Bar]:
        return [Bar("generating", tone, at_s, at_s + 0.1) for at_s in (0.0, 0.5)]  # type: ignore[arg-type]

    assert len(list(suspensions(bars("normal")))) == 1
    assert not list(suspensions(bars("answer")))


def test_a_legend_names_what_occurs_once() -> None:
    lane = Lane(
        "r",
        (Bar("executing", "urgent", 0, 1), Bar("pre-empted", "normal", 1, 2)),
        (Mark("pre-empted", "normal", 2.0), Mark("due, met", "urgent", 0.5)),
    )
    timeline = Timeline("t", (lane,))
    assert timeline.bar_legend() == [("executing", ["urgent"]), ("pre-empted", ["normal"])]
    assert timeline.mark_legend() == ["due, met"]


@given(low=st.floats(-1e4, 1e4), span=st.floats(1e-3, 1e5), most=st.integers(1, 50))
def test_ticks_are_round_and_few(low: float, span: float, most: int) -> None:
    made = ticks(low, low + span, most)
    assert len(made) <= most + 1
    room_s = 1e-6 + 1e-8 * span
    assert all(low - room_s <= at_s <= low + span + room_s for at_s in made)
    assert made == sorted(set(made))


def test_an_empty_timeline_has_an_axis() -> None:
    low, high = Timeline("nothing").limits
    assert high > low
    assert not math.isinf(high)
    assert document_timeline(TimelineDocument(name="")).lanes == ()


def test_ticks_are_where_people_expect_them() -> None:
    assert ticks(0.0, 36.0, 8) == [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0]
    assert ticks(-0.2, 1.6, 8) == pytest.approx([-0.2 + 0.2, 0.5, 1.0, 1.5])


def test_each_stage_has_a_row_of_what_it_computed_and_sent() -> None:
    first, second = in_stages().stage_rows("")
    assert first[0] == StageSpan(0.0, 0.2, False)
    assert first[1].sends
    assert (first[1].start_s, first[1].end_s) == pytest.approx((0.2, 0.3))
    assert [span.sends for span in second] == [True, False, True, False]
    assert (second[1].start_s, second[1].end_s) == (0.3, 0.6)


def test_transfers_that_overlap_with_computing_are_not_in_the_rows() -> None:
    rows = in_stages(OVERLAPPING).stage_rows("")
    assert not any(span.sends for row in rows for span in row)


def test_stages_without_a_common_clock_and_one_stage_have_no_rows() -> None:
    for times in (BLOCKING._replace(begins_s=()), None):
        step = EngineStep(0.0, 0.6, 1, stages=times)
        assert Timeline("t", steps=(step,)).stage_rows("") == []
        assert not Timeline("t", steps=(step,)).has_stages


def test_a_run_document_keeps_the_times_of_stages() -> None:
    step = TimelineStep(
        start_s=0.0, duration_s=0.6, requests=(), stages=StepStages(**BLOCKING._asdict())
    )
    saved = TimelineDocument(name="t", steps=(step,))
    assert TimelineDocument.model_validate_json(saved.model_dump_json()) == saved
    assert document_timeline(saved).steps[0].stages == BLOCKING
    assert "stages" not in SAVED.model_dump()["steps"][0]
    with pytest.raises(ValueError, match="of each stage and each link"):
        StepStages(**BLOCKING._replace(link_s=())._asdict())
