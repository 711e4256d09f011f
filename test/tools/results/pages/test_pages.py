"""The definitions of all pages."""

from __future__ import annotations

import pytest

from timely_llm.experiments.registry import EXPERIMENTS
from tools.results.check import options_of
from tools.results.page import ResultsError
from tools.results.pages import PAGES, chosen
from tools.results.pages.measures import TIMELY

ELSEWHERE = {"engine-overhead"}
"""Experiments that need vLLM: docs/results/vllm.md has them."""

OF_OTHER_THINGS = {"pipeline-plans", "overhead"}
"""Commands about rules of micro-batches and about the seconds of decisions."""


def test_every_experiment_has_a_page() -> None:
    shown = {command.experiment for page in PAGES for command in page.commands}
    assert set(EXPERIMENTS) - shown == ELSEWHERE


def test_pages_and_documents_have_names_of_their_own() -> None:
    assert len({page.name for page in PAGES}) == len(PAGES)
    commands = [command.name for page in PAGES for command in page.commands]
    assert len(set(commands)) == len(commands)


def test_timely_stands_beside_itself_as_it_serves_and_without_limits() -> None:
    shown = {
        command.name: {*getattr(options_of(command), "policies", ())}
        for page in PAGES
        for command in page.commands
    }
    lacking = {
        name for name, found in shown.items() if "timely" in found and not {*TIMELY} <= found
    }
    assert lacking == OF_OTHER_THINGS


def test_an_unknown_page_is_refused() -> None:
    assert chosen([]) == list(PAGES)
    assert [page.name for page in chosen(["fleet"])] == ["fleet"]
    with pytest.raises(ResultsError, match="there is no page 'floet': choose of drones, "):
        chosen(["floet"])
