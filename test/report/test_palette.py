import re

import pytest

from timely_llm.report.page import FOLDER
from timely_llm.report.palette import (
    DARK,
    LIGHT,
    SCHEMES,
    Scheme,
    Tone,
    looks,
    server_color,
    style_variables,
)
from timely_llm.resources import resource

TONES = LIGHT.tones


def luminance(color: str) -> float:
    """Return relative luminance as WCAG 2.2 defines it."""
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=list(SCHEMES))
def test_everything_stands_out_from_the_page(scheme: Scheme) -> None:
    assert contrast(scheme.ink, scheme.page) >= 7
    assert contrast(scheme.soft, scheme.page) >= 4.5
    strong = (pair.strong for pair in (*scheme.tones.values(), *scheme.servers))
    for color in (*scheme.series, scheme.idle, *strong):
        assert contrast(color, scheme.page) >= 3
    for pair in scheme.tones.values():
        assert contrast(scheme.ink, pair.pale) >= 4.5, "labels stand in bars"


def test_every_colour_is_a_variable_in_both_schemes() -> None:
    variables = dict(re.findall(r"--([\w-]+):light-dark\(([^)]+)\)", style_variables()))
    assert variables["urgent"] == f"{LIGHT.tones['urgent'].strong},{DARK.tones['urgent'].strong}"
    assert variables["page"] == f"{LIGHT.page},{DARK.page}"
    used = set(re.findall(r"var\(--([\w-]+)\)", (FOLDER / "style.css").read_text()))
    assert used - set(variables) == {"strong", "pale", "names", "failed-line"}


@pytest.mark.parametrize("name", sorted(TONES))
def test_the_colours_of_bars_stand_in_one_file(name: Tone) -> None:
    colors = {getattr(pair, part) for scheme in SCHEMES.values()
              for pair in [scheme.tones[name]] for part in ("strong", "pale")}  # fmt: skip
    package = resource("package.xml").parent / "timely_llm"
    rooms = [package / room for room in ("report", "demo", "experiments", "cli")]
    files = [p for r in rooms for end in ("py", "css", "js", "j2") for p in r.rglob(f"*.{end}")]
    assert files
    found = {path.name for path in files if any(c in path.read_text().lower() for c in colors)}
    assert found == {"palette.py"}


def test_series_differ_without_colour_too() -> None:
    many = looks(168)
    assert len(set(many)) == 168
    assert len({(look.hatch, look.marker) for look in many[:24]}) == 24
    assert len({look.hatch for look in many[:8]}) == 8
    assert len({look.marker for look in many[:6]}) == 6


def test_eight_servers_differ_from_each_other_and_from_classes_of_requests() -> None:
    for scheme in SCHEMES.values():
        colors = [pair.strong for pair in (*scheme.servers, *scheme.tones.values())]
        assert len(set(colors)) == len(colors) >= 8 + len(TONES)
    assert len({server_color(f"s{number}") for number in range(1, 9)}) == 8
