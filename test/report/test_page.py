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

from test.report.runs import HOSTILE, filled_with, simulated
from timely_llm.experiments.document import DocumentError, Row, RunDocument
from timely_llm.experiments.metrics import summary
from timely_llm.report.page import data, render, same_experiments, unique, write_page

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


def policy(page: Reader) -> str:
    (found,) = (value for name, value in page.attributes if value.startswith("default-src"))
    return found


def test_a_page_says_what_a_run_says() -> None:
    run = simulated()
    page = Reader(render([run]))
    for text in (run.experiment, run.question, run.command, run.profile, *run.notes):
        assert text in page.texts
    for meaning in run.definitions.values():
        assert meaning in page.texts
    assert run.papers[0].title in page.texts
    assert {timeline.name for timeline in run.timelines} <= set(page.texts)
    saved = [block["rows"] for block in page.blocks if "rows" in block]
    assert saved == [[dict(row) for row in rows] for rows in (run.rows, run.task_rows)]
    plots = [block for block in page.blocks if "item" in block]
    assert len(plots) == 4 + 6 + 2, "measures, measures of tasks by load, timelines"


def test_the_numbers_are_those_of_the_summary() -> None:
    run = simulated()
    values = [float(v) for name, v in Reader(render([run])).attributes if name == "data-value"]
    for row in summary(run.rows, run.keys):
        for measure in run.measures:
            assert row[measure] in values


def test_a_page_needs_nothing_from_anywhere() -> None:
    page = Reader(render([simulated(), filled_with("https://example.com/x.js")]))
    links = [value for name, value in page.attributes if name in LINKS]
    assert links
    assert all(value.startswith(("#", "data:,")) for value in links)
    assert "default-src 'none'" in policy(page)
    assert "url(" not in (Path(__file__).parents[2] / "timely_llm/report/style.css").read_text()


def test_only_the_scripts_of_the_page_may_run() -> None:
    page = Reader(render([small()]))
    hashes = re.findall(r"'sha256-([^']+)'", policy(page))
    made = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in page.scripts]
    assert hashes == made
    assert len(made) == 2
    assert "script-src 'unsafe" not in policy(page)


@pytest.mark.parametrize("text", [" ".join(HOSTILE[:4]), " ".join(HOSTILE[4:])])
def test_texts_with_plots_stay_texts(text: str) -> None:
    harmless, hostile = Reader(render([filled_with("x")])), Reader(render([filled_with(text)]))
    assert hostile.tags == harmless.tags
    assert len(hostile.blocks) == len(harmless.blocks)


HARMLESS = Reader(render([small()]))


@given(text=st.text(min_size=1, max_size=60) | st.sampled_from(HOSTILE))
@settings(deadline=None, max_examples=40)
def test_any_text_stays_a_text(text: str) -> None:
    page = Reader(render([small(text)], title=text, names=[text]))
    assert page.tags == HARMLESS.tags
    assert page.blocks[0]["rows"] == [{"policy": text}]


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
    page = Reader(render([first, first, second], names=["a", "a", "b"]))
    anchors = {value for name, value in page.attributes if name == "href"} - {"data:,"}
    ids = {value for name, value in page.attributes if name == "id"}
    assert anchors == {"#comparison-1", "#run-1", "#run-2", "#run-3"}
    assert {anchor[1:] for anchor in anchors} <= ids
    assert "a (2)" in page.texts


def test_names_are_made_unique() -> None:
    assert unique(["a", "b", "a", "a"]) == ["a", "b", "a (2)", "a (3)"]


def test_plots_with_too_much_in_them_are_not_drawn() -> None:
    rows: list[Row] = [{"policy": f"p{n}", "load": n % 2, "utility": n} for n in range(30)]
    page = Reader(render([RunDocument(experiment="e", rows=tuple(rows))]))
    assert not any("item" in block for block in page.blocks)
    assert any("too many settings" in text for text in page.texts)


def test_many_rows_are_not_all_in_the_table() -> None:
    rows: list[Row] = [{"policy": "a", "seed": seed} for seed in range(1500)]
    page = Reader(render([RunDocument(experiment="e", rows=tuple(rows))]))
    assert "1500 rows, the first 1000 here" in page.texts
    assert len(page.blocks[0]["rows"]) == 1500
    assert sum(tag[0] == "tr" for tag in page.tags) < 1100


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=f"cannot write {tmp_path}: it is a folder"):
        write_page([small()], tmp_path)
