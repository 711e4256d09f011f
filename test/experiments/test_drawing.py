from timely_llm.experiments.document import Span, Timeline
from timely_llm.experiments.drawing import COLUMNS, MOST_REQUESTS, draw, drawable

ONE = Timeline(
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


def test_a_request_is_two_lines_of_25_ms_a_column() -> None:
    name, scale, *lines = draw(ONE)
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
    assert not drawable(Timeline(name="nobody"))
    many = tuple(map(str, range(MOST_REQUESTS + 1)))
    assert not drawable(Timeline(name="many", requests=many, urgent=(False,) * len(many)))
