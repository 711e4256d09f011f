"""The pages of results, in the order of docs/results.md."""

from __future__ import annotations

from collections.abc import Sequence

from tools.results.page import Command, Page, PageTable, Picture, Ranking, ResultsError

PAGES = (
    Page(
        name="fleet",
        title="A fleet of robots at one server",
        commands=(Command("fleet", "fleet"),),
        picture=Picture(
            "fleet",
            ("qualified_per_min", "slo_attainment", "starvation_frequency"),
            "Plans done in time a minute, the share of requests in time, and starvation over the"
            " number of robots, a line for each policy",
            without=("timely", "slice"),
        ),
        tables=(
            PageTable(
                "fleet",
                (
                    "qualified_per_min",
                    "qualified_per_min_vs_stream",
                    "qualified_per_min_vs_dedicated",
                    "qualified_per_server_min",
                    "utility_per_min",
                    "utility",
                    "slo_attainment",
                    "task_latency_s",
                ),
                "What the fleet gets done",
            ),
            PageTable(
                "fleet",
                (
                    "useful_actions",
                    "starvation_frequency",
                    "starvation_duration_s",
                    "action_age_p50_s",
                    "action_age_p95_s",
                    "fairness",
                ),
                "What the robots wait for",
            ),
        ),
        rankings=(
            Ranking(
                "fleet",
                first=("utility_per_min", "qualified_per_min"),
                front={"utility_per_min": 1, "slo_attainment": 1, "starvation_frequency": -1},
                without=("dedicated",),
            ),
        ),
    ),
)


def chosen(names: Sequence[str], pages: Sequence[Page] = PAGES) -> list[Page]:
    """Return the pages of some names, or all pages without names.

    Raises:
        ResultsError: no page has the name.
    """
    known = {page.name: page for page in pages}
    for name in names:
        if name not in known:
            raise ResultsError(f"there is no page {name!r}: choose of {', '.join(known)}")
    return [known[name] for name in names] or list(pages)
