from bokeh.models import ColumnDataSource, Range1d
from bokeh.models.plots import GridPlot
from bokeh.plotting import figure

from test.report.runs import simulated
from timely_llm.experiments.document import Span, Step, Timeline
from timely_llm.report.lanes import lanes, lanes_px, time_limits, urgent_marks
from timely_llm.report.timeline_plot import draw_timeline

TIMELINE = Timeline(
    name="t",
    requests=("a", "b"),
    urgent=(False, True),
    spans=(
        Span(agent="one", request=0, kind="waiting", start_s=1.0, end_s=2.0),
        Span(agent="one", request=0, kind="executing", start_s=2.0, end_s=4.0, label="mf(9);"),
        Span(agent="two", request=1, kind="generating", start_s=1.5, end_s=1.7),
        Span(agent="two", request=1, kind="waiting", start_s=1.2, end_s=1.7),
        Span(agent="two", request=1, kind="listening", start_s=1.7, end_s=9.0),
    ),
    steps=(Step(start_s=1.5, duration_s=0.2, requests=(0, 1)),),
)


def parts(grid: GridPlot) -> list[figure]:
    return [child[0] for child in grid.children if isinstance(child[0], figure)]


def test_every_span_and_step_is_drawn_once() -> None:
    for timeline in (TIMELINE, *simulated().timelines):
        models = draw_timeline(timeline, "t").references()
        sources = [model for model in models if isinstance(model, ColumnDataSource)]
        spans = [source.data for source in sources if "label" in source.data]
        assert sum(len(data["left"]) for data in spans) == len(timeline.spans)
        (steps,) = (source.data for source in sources if source.name == "steps")
        assert steps["who"] == [list(step.requests) for step in timeline.steps]
        assert steps["top"] == [len(step.requests) for step in timeline.steps]


def test_both_parts_have_one_time_axis() -> None:
    grid = draw_timeline(TIMELINE, "t")
    strip, robots = parts(grid)
    assert strip.x_range is robots.x_range
    assert isinstance(robots.x_range, Range1d)
    low, high = time_limits(TIMELINE)
    assert (robots.x_range.start, robots.x_range.end) == (low, high)
    assert low < 1.0 and high > 9.0


def test_a_timeline_without_steps_has_no_strip() -> None:
    grid = draw_timeline(TIMELINE.model_copy(update={"steps": ()}), "t")
    assert len(parts(grid)) == 1


def test_nothing_at_all_can_be_drawn() -> None:
    assert len(parts(draw_timeline(Timeline(name=""), "t"))) == 1


def test_agents_have_lanes_in_order_and_urgent_requests_a_mark() -> None:
    assert lanes(TIMELINE) == {"one": 0, "two": -1}
    ((at_s, y),) = urgent_marks(TIMELINE)
    assert at_s == 1.2
    assert -1 < y < -0.5


def test_many_lanes_are_not_higher_than_browsers_can_draw() -> None:
    heights = [lanes_px(count) for count in range(0, 20_000)]
    assert max(heights) == 12_000
    assert min(heights) > 0
