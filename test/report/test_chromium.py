"""The page in a real browser, without a network."""

import asyncio
import csv
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from test.report.chromium import CHROMIUM, Page, chromium
from test.report.runs import HOSTILE, filled_with, loaded, simulated, with_people
from timely_llm.report.page import write_page
from timely_llm.report.palette import SCHEMES

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

BACKGROUND = "getComputedStyle(document.body).backgroundColor"
OVERFLOW = """[...document.querySelectorAll('body *')]
  .filter((node) => !node.closest('.scroll, .raw, svg'))
  .filter((node) => node.getBoundingClientRect().right > innerWidth + 0.5)
  .map((node) => node.outerHTML.slice(0, 90))"""
"""What stands out of the page on the right, apart from what can be scrolled."""
SCROLLED = """[...document.querySelectorAll('.wide:not(.raw)')]
  .filter((node) => node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.innerText.slice(0, 90))"""


def color_of(selector: str, what: str = "backgroundColor") -> str:
    """Return a script that looks up a colour of the first element."""
    return f"getComputedStyle(document.querySelector({selector!r})).{what}"


def in_browser(folder: Path, look: Callable[[Page], Awaitable[None]]) -> None:
    """Look at a page; afterwards there was no complaint and no request to the network."""

    async def run() -> None:
        async with chromium(folder / "profile") as page:
            await look(page)
            assert page.said == []
            assert page.asked == []

    asyncio.run(run())


@pytest.mark.parametrize("dark", [False, True])
def test_everything_is_drawn_in_the_scheme_that_the_reader_prefers(
    tmp_path: Path, dark: bool
) -> None:
    write_page(loaded(simulated()), tmp_path / "report.html")
    names = ["dark", "light"] if dark else ["light", "dark"]

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html", dark=dark)
        for name in (*names, names[0]):
            scheme = SCHEMES[name]
            assert await page.run(BACKGROUND) == rgb(scheme.page)
            bar = await page.run(color_of(".bars > i.exec.urgent"))
            assert bar == rgb(scheme.tones["urgent"].pale)
            line = await page.run(color_of(".bars > i.exec.urgent", "borderLeftColor"))
            assert line == rgb(scheme.tones["urgent"].strong)
            work = await page.run(color_of(".model path.gen.normal", "stroke"))
            assert work == rgb(scheme.tones["normal"].strong)
            series = await page.run(color_of(".s1", "fill"))
            assert series == rgb(scheme.series[1])
            await page.run("document.getElementById('scheme').click()")

    in_browser(tmp_path, look)


def test_a_bar_says_what_it_is_and_a_timeline_can_be_made_larger(tmp_path: Path) -> None:
    run = simulated()
    write_page(loaded(run), tmp_path / "report.html")

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html")
        await page.run("document.querySelector('.bars > i.exec').click()")
        said = await page.run("document.querySelector('.timeline output').textContent")
        label = await page.run("document.querySelector('.bars > i.exec').textContent")
        assert label and f"executes {label}, " in said
        assert any(said.startswith(f"{name}: ") for name in run.timelines[0].requests)
        width = "document.querySelector('.sheet').offsetWidth"
        before = await page.run(width)
        await page.run("document.querySelectorAll('.zoom button')[1].click()")
        assert await page.run(width) == pytest.approx(2 * before, abs=2)
        await page.run("document.querySelectorAll('.zoom button')[2].click()")
        assert await page.run(width) == before

    in_browser(tmp_path, look)


def test_texts_are_shown_and_never_run(tmp_path: Path) -> None:
    text = " ".join(HOSTILE[:-1])
    write_page(loaded(filled_with(text)), tmp_path / "report.html", names=[text])

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html")
        question = await page.run("document.querySelector('.question').textContent")
        assert question == text.replace("\x00", ""), "browsers leave that out"
        await page.run("document.querySelectorAll('.bars > i').forEach((bar) => bar.click())")
        await page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert "<script>" in await page.run("document.querySelector('output').textContent")
        assert await page.run("typeof window.bad") == "undefined"

    in_browser(tmp_path, look)


@pytest.mark.parametrize("width", [420, 1400])
def test_nothing_stands_out_of_the_page(tmp_path: Path, width: int) -> None:
    write_page(loaded(simulated(), with_people()), tmp_path / "report.html")

    async def look(page: Page) -> None:
        await page.show(tmp_path / "report.html", width=width)
        await page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert await page.run("document.documentElement.scrollWidth") <= width
        assert await page.run(OVERFLOW) == []
        assert await page.run(SCROLLED) == [], "every table fits"

    in_browser(tmp_path, look)


def test_a_phone_shows_all_and_saves_rows(tmp_path: Path) -> None:
    run = simulated().model_copy(update={"timelines": ()})
    formula = {"policy": "=1+1", "load": 1, "seed": 0, "utility": 1.0, 'say "x", y': "a\nb"}
    run = run.model_copy(update={"rows": (*run.rows, formula)})
    write_page(loaded(run), tmp_path / "report.html", names=["my run"])

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
