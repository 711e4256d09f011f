"""docs/map.md is drawn from the code, and refuses what the code does not have."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest

from timely_llm.resources import resource
from tools.map import path, places
from tools.map.code import PACKAGE, MapError, definition, details, imported_rooms, modules, rooms
from tools.map.document import document, picture, reached
from tools.map.path import STATIONS, Station

MAP = resource("package.xml").parent / "docs/map.md"


def test_the_map_is_that_of_the_code() -> None:
    assert MAP.read_text() == document(), "run: python -m tools.map > docs/map.md"


def test_every_room_is_drawn_and_says_what_belongs_into_it() -> None:
    text = MAP.read_text()
    for room in rooms():
        assert f"\n### {room}\n" in text
        assert f'    {room}["{room}<br/>' in text
        assert len(details(PACKAGE / room).split(". ")) >= 2 or room in ("profiling", "benchmarks")


def test_the_picture_has_every_import_directly_or_by_others() -> None:
    drawn: dict[str, set[str]] = {room: set() for room in rooms()}
    for room, other in re.findall(r"^    (\w+) --> (\w+)$", picture(), re.M):
        drawn[room].add(other)
    for room in rooms():
        assert imported_rooms(room) <= reached(room, drawn)
        assert drawn[room] <= imported_rooms(room)
    assert sum(map(len, drawn.values())) < 2 * len(drawn), "a picture that is read at a glance"


def test_every_module_has_its_link() -> None:
    links = set(re.findall(r"\]\(\.\./timely_llm/([\w/]+\.py)\)", MAP.read_text()))
    for file in PACKAGE.rglob("*.py"):
        inner = file.relative_to(PACKAGE)
        if file.name != "__init__.py" and len(inner.parts) > 1:
            assert str(inner) in links or inner.parts[0] in ("msg", "srv", "action")


def test_the_path_is_short_and_has_the_three_verbs_in_order() -> None:
    assert 15 <= len(STATIONS) <= 20
    verbs = [station.verb for station in STATIONS if station.verb]
    assert list(dict.fromkeys(verbs)) == ["admit", "step", "deliver"]
    assert verbs == sorted(verbs, key=["admit", "step", "deliver"].index)


def test_the_sequence_has_an_arrow_for_each_station_and_for_the_segment() -> None:
    first, *lines, last = path.picture().splitlines()
    assert (first, lines[0], last) == ("```mermaid", "sequenceDiagram", "```")
    members = re.findall(r"^    participant (\w+)$", "\n".join(lines), re.M)
    arrows = re.findall(r"^    (\w+)->>(\w+): (.+)$", "\n".join(lines), re.M)
    assert {end for one, other, _ in arrows for end in (one, other)} == set(members)
    shown = [(room, words) for _, room, words in arrows]
    assert shown == [
        *((one.path.split("/")[0], f"{n} {one.name}") for n, one in enumerate(STATIONS, 1)),
        ("robot", "Segment"),
    ]
    assert ("serving", "engines") in {(one, other) for one, other, _ in arrows}
    inside = lines[lines.index("    loop each step") : lines.index("    end")]
    assert any(path.AGAIN[0] in line for line in inside)
    assert path.AGAIN[1] in inside[-1]
    assert sum("Note over serving: " in line for line in lines) == 3


def test_a_station_that_no_plan_passes_is_refused() -> None:
    passed = STATIONS[2]
    with pytest.raises(MapError, match=r"a plan does not pass through Loop\.cancel"):
        path.check((passed, Station("admit", passed.path, "Loop.cancel")))


def test_stations_in_another_order_are_refused() -> None:
    with pytest.raises(MapError, match=r"passes through Loop\.admit of serving/loop\.py earlier"):
        path.check((STATIONS[7], STATIONS[2]))


def test_a_station_of_another_thread_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = replace(STATIONS[0], name="RequestEndpoint.gone")
    monkeypatch.setattr(path, "STATIONS", (gone, *STATIONS[1:]))
    with pytest.raises(MapError, match=r"defines no RequestEndpoint\.gone"):
        path.table()


@pytest.mark.parametrize(
    ("file", "name", "problem"),
    [
        ("timely_llm/no.py", "", "there is no timely_llm/no.py"),
        ("timely_llm/serving/loop.py", "Loop.gone", "defines no Loop.gone"),
        ("msg/Segment.msg", "gone", "msg/Segment.msg has no gone"),
    ],
)
def test_a_place_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, file: str, name: str, problem: str
) -> None:
    monkeypatch.setattr(places, "PLACES", (places.Place("something", ((file, name),)),))
    with pytest.raises(MapError, match=re.escape(problem)):
        places.table()


def test_each_place_names_at_most_three_files() -> None:
    assert all(1 <= len(place.files) <= 3 for place in places.PLACES)


STRANGERS_QUESTIONS = {
    "the rule that bounds a batch in time (`timely`)": "self._protected",
    "the sentence for a full queue": "ErrorCode.QUEUE_FULL",
    "the colour of urgent bars": '"urgent": (Hue(',
    "what happens when a robot fails a segment": "replan",
    "a field of `Segment`": "predicted_s",
}
"""Rows of the map, and what stands in the definition that the row names first."""


def test_the_readme_leads_to_the_file_to_change() -> None:
    readme = (MAP.parents[1] / "README.md").read_text()
    beginning, _, rest = readme.partition("\n## ")
    assert "](docs/map.md)" in beginning and "](docs/map.md)" in rest
    rows = re.findall(
        r"^\| ([^|]+) \| \[([^]]+)\]\([^)]+\) \| `([^`]+)` \|$", MAP.read_text(), re.M
    )
    found = {what: (MAP.parents[1] / path, name) for what, path, name in rows}
    for what, words in STRANGERS_QUESTIONS.items():
        file, name = found[what]
        node = definition(file, name)
        assert words in (ast.get_source_segment(file.read_text(), node) or ""), what


def test_names_of_modules_are_found() -> None:
    loop = PACKAGE / "serving/loop.py"
    assert loop in modules(PACKAGE / "serving")
    assert definition(loop, "Loop.turn") is not definition(loop, "Loop.admit")
