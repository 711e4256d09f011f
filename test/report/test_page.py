import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from test.report.runs import HOSTILE, WRITTEN, filled_with, loaded, simulated, with_people
from timely_llm.experiments.results.document import DocumentError, Row, RunDocument
from timely_llm.experiments.results.metrics import summary
from timely_llm.report.load import LoadedRun
from timely_llm.report.page import FOLDER, data, level, render, same_experiments, unique, write_page
from timely_llm.report.tables import number
from timely_llm.report.timeline import Bar, Lane, Timeline

MOST_PAGE_BYTES = 600_000
LINKS = ("src", "href", "action", "data", "poster", "srcset")


class Reader(HTMLParser):
    """Reads a page as a browser does.

    Attributes:
        tags: names of elements and of their attributes, in order.
        texts: what is written, apart from scripts and styles.
        scripts: those that are run.
        blocks: data in scripts that are not.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.blocks: list[Any] = []
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.attributes += [(name, value or "") for name, value in attrs]
        self._open = (tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        self._open = ("", {})

    def handle_data(self, text: str) -> None:
        tag, attributes = self._open
        if tag == "script" and attributes.get("type") == "application/json":
            self.blocks.append(json.loads(text))
        elif tag == "script":
            self.scripts.append(text)
        elif tag != "style" and text.strip():
            self.texts.append(text)


def small(text: str = "x") -> RunDocument:
    """Return a run without plots: quick to render."""
    return RunDocument(
        experiment=text, question=text, command=text, profile=text, setup={text: text},
        definitions={f"x{text}": text}, rows=({"policy": text},), notes=(text,),
    )  # fmt: skip


def saved(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a block, as the page's script puts them together."""
    return [
        {name: value for name, value in zip(block["columns"], row, strict=True) if value != []}
        for row in block["rows"]
    ]


def policy(page: Reader) -> str:
    (found,) = (value for name, value in page.attributes if value.startswith("default-src"))
    return found


def test_a_page_says_what_a_run_says() -> None:
    run = simulated()
    page = Reader(render(loaded(run)))
    for text in (run.experiment, run.question, run.command, run.profile, *run.notes):
        assert text in page.texts
    for meaning in run.definitions.values():
        assert meaning in page.texts
    assert run.papers[0].title in page.texts
    assert {timeline.name for timeline in run.timelines} <= set(page.texts)
    assert [saved(block) for block in page.blocks] == [
        [dict(row) for row in rows] for rows in (run.rows, run.task_rows)
    ]
    drawn = [value for name, value in page.attributes if name == "class"]
    assert drawn.count("chart") == 5 + 6, "measures, and measures of tasks by load"
    assert sum("timeline" in one.split() for one in drawn) == 2


def test_the_numbers_are_those_of_the_summary() -> None:
    run = simulated()
    texts = Reader(render(loaded(run))).texts
    for row in summary(run.rows, run.keys):
        for measure in run.measures:
            mean, half = number(row[measure], row[measure + "_ci"]).split(" ± ")
            assert any(text.strip("( ") == mean for text in texts)
            assert f"± {half}" in texts


def test_a_page_needs_nothing_from_anywhere() -> None:
    page = Reader(render(loaded(simulated(), filled_with("https://example.com/x.js"))))
    links = [value for name, value in page.attributes if name in LINKS]
    assert links
    assert all(value.startswith(("#", "data:,")) for value in links)
    assert "default-src 'none'" in policy(page)
    assert "url(" not in (FOLDER / "style.css").read_text()
    filled = {value for name, value in page.attributes if value.startswith("url(")}
    ids = {value for name, value in page.attributes if name == "id"}
    assert filled and {fill[5:-1] for fill in filled} <= ids


def test_only_the_scripts_of_the_page_may_run() -> None:
    page = Reader(render(loaded(small())))
    hashes = re.findall(r"'sha256-([^']+)'", policy(page))
    made = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts]
    assert hashes == made
    assert len(made) == 1
    assert "script-src 'unsafe" not in policy(page)


@pytest.mark.parametrize("text", [" ".join(HOSTILE[:4]), " ".join(HOSTILE[4:])])
def test_texts_with_plots_stay_texts(text: str) -> None:
    as_long = re.sub(r"\S", "x", text)
    harmless, hostile = (Reader(render(loaded(filled_with(one)))) for one in (as_long, text))
    assert hostile.tags == harmless.tags
    assert len(hostile.blocks) == len(harmless.blocks)


@given(text=st.text(min_size=1, max_size=60) | st.sampled_from(HOSTILE))
@settings(deadline=None, max_examples=20)
def test_any_text_stays_a_text(text: str) -> None:
    as_long = re.sub(r"\S", "x", text)
    page, harmless = (Reader(render(loaded(small(t)), title=t, names=[t])) for t in (text, as_long))
    assert page.tags == harmless.tags
    assert saved(page.blocks[0]) == [{"policy": text}]


@given(st.recursive(st.none() | st.text() | st.integers(), st.lists))
def test_data_cannot_end_its_element(value: Any) -> None:
    written = data(value)
    assert json.loads(written) == value
    assert not set(written) & set("<>&")


def test_runs_of_one_experiment_are_compared() -> None:
    first, second = simulated(), simulated().model_copy(update={"measures": ("utility",)})
    assert same_experiments([first, second], ["a", "b"]) == []
    (both,) = same_experiments([first, second, first], ["a", "b", "c"])
    assert both.keys == ("run", "policy", "load")
    assert {row["run"] for row in both.rows} == {"a", "c"}
    other = first.model_copy(update={"rows": tuple({**r, "load": 9} for r in first.rows)})
    (apart,) = same_experiments([first, other], ["a", "b"])
    assert apart.keys == first.keys
    assert len(apart.rows) == 2 * len(first.rows)
    page = Reader(render(loaded(first, first, second), names=["a", "a", "b"]))
    anchors = {value for name, value in page.attributes if name == "href"} - {"data:,"}
    ids = {value for name, value in page.attributes if name == "id"}
    assert anchors == {"#comparison-1", "#run-1", "#run-2", "#run-3"}
    assert {anchor[1:] for anchor in anchors} <= ids
    assert "a (2)" in page.texts


def test_names_are_made_unique() -> None:
    assert unique(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


def test_plots_with_too_much_in_them_are_not_drawn() -> None:
    rows: list[Row] = [{"policy": f"p{n}", "load": n % 2, "utility": n} for n in range(30)]
    page = Reader(render(loaded(RunDocument(experiment="e", rows=tuple(rows)))))
    assert ("class", "chart") not in page.attributes
    assert any("too much for a chart" in text for text in page.texts)


def test_more_rows_than_a_page_can_hold_are_counted_and_left_out() -> None:
    rows: list[Row] = [{"policy": "a", "seed": seed, "x": seed / 7} for seed in range(30_000)]
    text = render(loaded(RunDocument(experiment="e", rows=tuple(rows))))
    assert len(text.encode()) < MOST_PAGE_BYTES
    page = Reader(text)
    kept = saved(page.blocks[0])
    assert kept == [dict(row) for row in rows[: len(kept)]]
    assert 5_000 < len(kept) < 30_000
    said = f"Rows: 30000, the first {len(kept)} here, all in the file of the run"
    assert said in page.texts


def test_a_long_timeline_shows_its_busiest_part() -> None:
    bars = [Bar("executing", "normal", 2.0 * n, 2.0 * n + 1, f"r{n}", "mf(1)") for n in range(999)]
    bars += [Bar("executing", "urgent", 1200 + n / 20, 1200.01 + n / 20, "b") for n in range(3000)]
    run = LoadedRun(small(), WRITTEN, (Timeline("t", (Lane("r", tuple(bars)),)),), is_one=True)
    text = render([run])
    assert len(text.encode()) < MOST_PAGE_BYTES
    (said,) = (text for text in Reader(text).texts if "The busiest part" in text)
    low, high = (float(part) for part in re.findall(r"[\d.]+", said)[:2])
    assert 1150 < low < 1350 and low < high
    assert said.endswith("of a timeline from 0.0 to 1997.0 s with 3,999 bars.")


@given(sizes=st.lists(st.integers(0, 1000), max_size=20), most=st.integers(1, 5000))
def test_small_parts_are_whole_where_large_ones_are_cut(sizes: list[int], most: int) -> None:
    cut = level(sizes, most)
    kept = [min(size, cut) for size in sizes]
    assert sum(kept) <= most
    assert kept == sizes or most - sum(kept) < len(sizes), "no room is left unused"


def test_charts_that_have_no_room_are_named() -> None:
    rows: list[Row] = [
        {"policy": f"p{n}", "load": load, **{f"measure_{m}": n + m for m in range(60)}}
        for n in range(8)
        for load in range(12)
    ]
    measures = tuple(f"measure_{m}" for m in range(60))
    run = RunDocument(experiment="e", rows=tuple(rows), measures=measures)
    text = render(loaded(run))
    page = Reader(text)
    drawn = [value for name, value in page.attributes if value == "chart"]
    named = [text for text in page.texts if "too much for a chart on this page" in text]
    assert drawn and named and len(drawn) + len(named) == 60
    assert len(text.encode()) < MOST_PAGE_BYTES


def test_a_page_of_everything_stays_small() -> None:
    assert len(render(loaded(simulated(), with_people())).encode()) < MOST_PAGE_BYTES


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=f"cannot write {tmp_path}: it is a folder"):
        write_page(loaded(small()), tmp_path)
