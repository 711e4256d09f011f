"""The page in a real browser, without a network."""

import asyncio
import csv
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from test.report.chromium import CHROMIUM, Page, chromium
from test.report.runs import HOSTILE, filled_with, simulated, with_people
from timely_llm.report.page import write_page
from timely_llm.report.palette import SCHEMES

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

FIND = """
var within = (node) => [node, ...[...node.children, ...(node.shadowRoot?.children ?? [])]
  .flatMap(within)];
var all = within(document.documentElement);
"""
DRAWN = FIND + "all.filter((node) => node.tagName === 'CANVAS' && node.width > 0).length"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
PLOT_COLOURS = """[...new Set(Bokeh.documents.flatMap((one) => one.roots())
  .flatMap((root) => [...root.references()])
  .filter((model) => model.type === 'Figure')
  .map((plot) => plot.background_fill_color))]"""
NEXT_FRAME = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
TOOLTIPS = (
    FIND
    + """
all.filter((node) => node.classList.contains('bk-Tooltip')).map((node) =>
  [...node.shadowRoot.children].filter((part) => part.tagName !== 'STYLE')
    .map((part) => part.innerText).join(' ')).join(' ')
"""
)


def in_browser(folder: Path, look: Callable[[Page], Awaitable[None]]) -> None:
    """Look at a page; afterwards nobody complained, and nobody asked the network for anything."""

    async def run() -> None:
        async with chromium(folder / "profile") as page:
            await look(page)
            assert page.said == []
            assert page.asked == []

    asyncio.run(run())


@pytest.mark.parametrize("dark", [False, True])
def test_plots_are_drawn_in_the_scheme_that_the_reader_prefers(tmp_path: Path, dark: bool) -> None:
    write_page([simulated()], tmp_path / "report.html")
    names = ["dark", "light"] if dark else ["light", "dark"]

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html", dark=dark)
        plots = len(await page.run("[...document.querySelectorAll('.plot')].map((p) => p.id)"))
        assert plots == 4 + 6 + 2
        assert await page.run("Bokeh.documents.length") == 4 + 2, "some are in closed details"
        await page.run("document.querySelector('details').open = true")
        opened = f"document.documentElement.dataset.drawn === '{plots}'"
        await page.run(f"(async () => {{ while (!({opened})) await {NEXT_FRAME}; }})()")
        assert await page.run(DRAWN) >= plots
        for name in (*names, names[0]):
            assert await page.run(PLOT_COLOURS) == [SCHEMES[name].page]
            assert await page.run(BACKGROUND) == rgb(SCHEMES[name].page)
            await page.run("document.getElementById('scheme').click()")

    in_browser(tmp_path, look)


def test_people_are_shown_beside_robots(tmp_path: Path) -> None:
    run = with_people()
    write_page([run], tmp_path / "report.html")

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html")
        figures = """Bokeh.documents.flatMap((one) => one.roots())
          .flatMap((root) => [...root.references()]).filter((one) => one.type === 'Figure')"""
        titles = await page.run(f"{figures}.map((plot) => plot.title?.text)")
        assert {"attainment", "ttft p95 (s)", "max gap (s)"} <= set(titles)
        attainment = f"{figures}.find((plot) => plot.title?.text === 'attainment')"
        drawn = await page.run(
            f"[...{attainment}.references()].map((one) => one.glyph?.type).filter(Boolean)"
        )
        assert drawn.count("Line") == 2, "a line for each policy over the rate"
        assert drawn.count("Segment") == 1, "and intervals"
        kinds = await page.run(
            """[...new Set(Bokeh.documents.flatMap((one) => one.roots())
            .flatMap((root) => [...root.references()])
            .flatMap((one) => one.type === 'ColumnDataSource' ? one.get_array('kind') : []))]"""
        )
        assert set(kinds) == {"waiting", "generating", "executing", "listening"}

    in_browser(tmp_path, look)


def test_texts_are_shown_and_never_run(tmp_path: Path) -> None:
    text = " ".join(HOSTILE[:-1])
    write_page([filled_with(text)], tmp_path / "report.html", names=[text])

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html")
        question = await page.run("document.querySelector('.question').textContent")
        assert question == text.replace("\x00", ""), "browsers leave that out"
        timeline = "document.querySelector('.timeline .plot')"
        box = await page.run(
            f"{timeline}.scrollIntoView(); {timeline}.getBoundingClientRect().toJSON()"
        )
        said = ""
        for share in range(10, 50, 5):
            for down_px in (142, *range(158, 188, 3)):
                await page.call(
                    "Input.dispatchMouseEvent", type="mouseMoved",
                    x=box["x"] + box["width"] * share / 100, y=box["y"] + down_px,
                )  # fmt: skip
                await page.run(NEXT_FRAME)
                said += await page.run(TOOLTIPS)
        assert "<script>" in said.partition("executing")[2], "a span is called what it is called"
        assert "<script>" in said.partition("a batch of")[2], "and so are a step's requests"
        assert await page.run("typeof window.bad") == "undefined"

    in_browser(tmp_path, look)


def test_steps_name_who_took_part_and_time_can_be_zoomed(tmp_path: Path) -> None:
    run = simulated()
    write_page([run], tmp_path / "report.html")

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html")
        step = "Bokeh.documents.findLast((d) => d.get_model_by_name('steps'))"
        shown = await page.run(f"{step}.get_model_by_name('steps').data.who[3]")
        timeline = run.timelines[-1]
        assert shown == ", ".join(timeline.requests[one] for one in timeline.steps[3].requests)
        ranges = f"[...{step}.roots()[0].references()].filter((m) => m.type === 'Figure')"
        before, zoomed = [
            await page.run(f"{action} {ranges}.map((f) => f.x_range.end - f.x_range.start)")
            for action in (
                "",
                f"""[...{step}.roots()[0].references()].filter((m) => m.type === 'ZoomInTool')
                .forEach((tool) => tool.do.emit(undefined));""",
            )
        ]
        assert before[0] == before[1]
        assert zoomed[0] == zoomed[1] < before[0]

    in_browser(tmp_path, look)


def test_a_phone_shows_all_and_saves_rows(tmp_path: Path) -> None:
    run = simulated().model_copy(update={"timelines": ()})
    formula = {"policy": "=1+1", "load": 1, "seed": 0, "utility": 1.0, 'say "x", y': "a\nb"}
    run = run.model_copy(update={"rows": (*run.rows, formula)})
    write_page([run], tmp_path / "report.html", names=["my run"])

    async def look(page: Page) -> None:
        await page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        await page.show(tmp_path / "report.html", width=360)
        assert await page.run("document.documentElement.scrollWidth") <= 360
        for kind in ("csv", "json"):
            await page.run(f"document.querySelector('button[data-kind={kind}]').click()")
            while not (tmp_path / f"my-run-rows.{kind}").exists():
                await asyncio.sleep(0.05)

    in_browser(tmp_path, look)
    assert json.loads((tmp_path / "my-run-rows.json").read_text()) == [
        dict(row) for row in run.rows
    ]
    with (tmp_path / "my-run-rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(run.rows)
    assert [float(row["utility"]) for row in rows] == [row["utility"] for row in run.rows]
    assert rows[-1]["policy"] == "'=1+1"
    assert rows[-1]['say "x", y'] == "a\nb"


def rgb(color: str) -> str:
    """Return a colour as a browser writes it."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"
