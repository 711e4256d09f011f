from rich.console import Console

from test.report.stages import in_stages
from timely_llm.experiments.results.document import Span, TimelineDocument
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.palette import TERMINAL
from timely_llm.report.terminal import (
    COLUMNS,
    MOST_REQUESTS,
    drawable,
    meter,
    strip,
    style,
    timeline_lines,
)
from timely_llm.report.timeline import Bar, Lane, Timeline

SAVED = TimelineDocument(
    name="fcfs",
    requests=("71", "72"),
    urgent=(False, True),
    spans=(
        Span(agent="a", request=0, kind="waiting", start_s=0.0, end_s=0.1),
        Span(agent="a", request=0, kind="generating", start_s=0.05, end_s=0.125),
        Span(agent="a", request=0, kind="executing", start_s=0.1, end_s=99.0),
        Span(agent="b", request=1, kind="waiting", start_s=-1.0, end_s=0.05),
        Span(agent="b", request=1, kind="generating", start_s=0.05, end_s=0.075),
    ),
)
ONE = document_timeline(SAVED)


def test_a_request_is_two_lines_of_25_ms_a_column() -> None:
    name, scale, *lines = timeline_lines(ONE)
    assert name == "fcfs"
    assert scale.split() == ["0", "0.25", "0.5", "0.75", "1", "1.25", "1.5", "s"]
    assert lines == [
        "71 normal model    ███",
        "          robot  ····" + "▒" * (COLUMNS - 4),
        "72 urgent model    █",
        "          robot  ··",
    ]
    assert scale.index("0") == lines[1].index("·"), "the scale begins where the bars do"


def test_only_a_few_requests_are_drawn() -> None:
    assert drawable(ONE)
    assert not drawable(Timeline("nothing"))
    bars = tuple(Bar("waiting", "normal", 0, 1, str(n)) for n in range(MOST_REQUESTS + 1))
    assert not drawable(Timeline("many", (Lane("r", bars),)))


def test_a_strip_shows_the_last_seconds_in_the_colours_of_classes() -> None:
    bars = [
        Bar("executing", "normal", 0.0, 4.0),
        Bar("waiting", "urgent", 4.0, 6.0),
        Bar("executing", "urgent", 6.0, 8.0),
        Bar("failed", "urgent", 8.0, 10.0),
        Bar("generating", "urgent", 0.0, 10.0),
    ]
    made = strip(bars, 2.0, 10.0, 8)
    assert made.plain == "▒▒··▒▒xx"
    segments = [(s.text, str(s.style)) for s in made.render(Console())]
    colours = [colour for text, colour in segments if text.strip() for _ in text]
    assert colours[0] == TERMINAL["normal"]
    assert colours[4] == TERMINAL["urgent"] == style("urgent")
    assert colours[-1] == TERMINAL["failed"]


def test_a_meter_is_never_longer_than_its_place() -> None:
    for share in (-1.0, 0.0, 0.5, 1.0, 9.0):
        assert len(meter(share, "red", 12).plain) == 12


def test_each_stage_is_a_line_below_the_requests() -> None:
    *_, first, second = timeline_lines(in_stages())
    assert first == "stage 1         ████████────████████────"
    assert second == "stage 2         " + " " * 8 + "─" * 4 + "█" * 24
