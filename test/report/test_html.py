from __future__ import annotations

import re
from html.parser import HTMLParser

from test.report.runs import HOSTILE, simulated
from test.report.stages import OVERLAPPING, in_stages
from test.report.test_timeline import SAVED
from timely_llm.report.document_timeline import document_timeline
from timely_llm.report.html import LEAST, chart_svg, timeline_html
from timely_llm.report.series import charts
from timely_llm.report.timeline import Bar, EngineStep, Lane, Mark, Timeline

ONE = Timeline(
    "t",
    (
        Lane(
            "robot_0",
            (
                Bar("waiting", "urgent", 0.0, 1.0, "a"),
                Bar("generating", "urgent", 0.2, 1.0, "a"),
                Bar("executing", "urgent", 1.0, 4.0, "a", "mf(100)"),
                Bar("pre-empted", "normal", 4.0, 7.0, "b", "s('hat')"),
                Bar("failed", "urgent", 8.0, 10.0, "c", "d(3)"),
            ),
            (Mark("due, missed", "urgent", 0.5, "a", "mf(100);", 0.5),),
        ),
    ),
    (EngineStep(0.2, 1.0, 3),),
)


class Elements(HTMLParser):
    """Elements of a page in order: tag, attributes and the text directly after the start."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}, ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def of_class(self, name: str) -> list[tuple[str, dict[str, str], str]]:
        return [one for one in self.found if name in one[1].get("class", "").split()]


def style(attributes: dict[str, str]) -> dict[str, float]:
    pairs = (part.split(":") for part in attributes["style"].split(";"))
    return {name: float(value.rstrip("%")) for name, value in pairs}


def bars(page: Elements, kind: str) -> list[tuple[str, dict[str, str], str]]:
    return [one for one in page.of_class(kind) if one[0] == "i" and "style" in one[1]]


def test_bars_stand_where_they_happened_with_their_labels() -> None:
    page = Elements(timeline_html(ONE))
    ((_, attributes, label),) = bars(page, "exec")
    assert label == "mf(100)"
    assert style(attributes) == {"left": 10.0, "width": 30.0}
    assert "urgent" in attributes["class"].split()


def test_a_plan_that_was_pre_empted_does_not_look_failed() -> None:
    page = Elements(timeline_html(ONE))
    ((_, cut, cut_label),) = bars(page, "pre")
    ((_, failed, failed_label),) = bars(page, "fail")
    assert (cut_label, failed_label) == ("s('hat')", "d(3)")
    assert "fail" not in cut["class"].split()
    assert "pre" not in failed["class"].split()


def test_the_models_work_and_the_batches_are_paths() -> None:
    page = Elements(timeline_html(ONE))
    ((_, attributes, _),) = [one for one in page.of_class("gen") if one[0] == "path"]
    assert attributes["d"] == "M200 5h800"
    (strip,) = [one for one in page.found if one[1].get("d", "").startswith("M200 3V0H1000V3")]
    assert strip
    blink = Timeline("", (Lane("r", (Bar("generating", "normal", 5.0, 5.0001, "a"),)),), (),
                     (0.0, 100.0))  # fmt: skip
    assert f"h{LEAST}" in timeline_html(blink), "no bar is too narrow to be seen"


def test_each_of_several_servers_has_a_strip_and_a_colour() -> None:
    work = (Bar("generating", "urgent", 0.0, 1.0, "a", server="s2"),)
    two = Timeline(
        "t", (Lane("robot_0", work),), (EngineStep(0.0, 1.0, 2, "s2"),), (0.0, 10.0),
        outages={"s1": (), "s2": ((5.0, 7.0),)},
    )  # fmt: skip
    page = Elements(timeline_html(two))
    assert [text for _, _, text in page.of_class("agent")][:2] == ["s1, 0 to 2", "s2, 0 to 2"]
    ((_, lost, _),) = page.of_class("lost")
    assert lost["d"] == "M5000 2V0H7000V2"
    colored = [one[1]["style"] for one in page.of_class("gen") if one[0] == "path"]
    assert colored == ["--strong:var(--server-1);--pale:var(--server-1-pale)"]
    assert not Elements(timeline_html(ONE)).of_class("named")


def test_a_reader_who_sees_nothing_hears_what_happened() -> None:
    page = Elements(timeline_html(ONE))
    (said,) = (one[1]["aria-label"] for one in page.found if "aria-label" in one[1])
    assert said == "Timeline of 1 robot over 10 s. 1 delivery was late, 1 segment failed"


def test_lanes_are_in_order() -> None:
    page = Elements(timeline_html(document_timeline(SAVED)))
    names = [text for _, _, text in page.of_class("agent")]
    assert names == ["batch, 0 to 2", "robot_9", "robot_10", "ann", ""]


def test_texts_stay_texts() -> None:
    harmless = Elements(timeline_html(_called("x")))
    for text in HOSTILE:
        page = Elements(timeline_html(_called(text)))
        assert [one[0] for one in page.found] == [one[0] for one in harmless.found]


def _called(text: str) -> Timeline:
    bar = Bar("executing", "normal", 0.0, 1.0, text, text)
    return Timeline(text, (Lane(text, (bar,), (Mark("delivered", "normal", 0.5, text, text),)),))


def test_a_chart_has_a_bar_for_each_point_and_says_its_number() -> None:
    (chart, *_) = charts(simulated())
    drawn = chart_svg(chart)
    points = [point for series in chart.series for point in series.points]
    titles = re.findall(r"<title>(.*?)</title>", drawn)
    assert len(titles) == len(points)
    assert all(re.search(r": [\d.]+ ± ", title) for title in titles)
    assert "utility by load; the numbers are in the table" in drawn


def test_each_stage_has_a_row_below_the_batches() -> None:
    page = Elements(timeline_html(in_stages()))
    names = [text for _, _, text in page.of_class("agent")]
    assert names[:4] == ["batch, 0 to 1", "stage 1", "stage 2", "robot_0"]
    drawn = [one[1]["d"] for one in page.found if one[0] == "path" and " 5h" in one[1]["d"]]
    assert drawn[:2] == ["M2000 5h1000M5000 5h1000", "M0 5h2000M3000 5h2000"]
    legend = [text for tag, _, text in page.found if tag == "i"]
    assert {"stage computes", "stage sends"} <= {text for _, _, text in page.found}, legend
    overlapping = Elements(timeline_html(in_stages(OVERLAPPING)))
    assert [one[1]["d"] for one in overlapping.of_class("sends") if one[0] == "path"] == ["", ""]
    assert not Elements(timeline_html(ONE)).of_class("stage")
