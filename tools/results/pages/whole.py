"""Pages about whole requests that come at once, in a predicted order (Huang et al. 2025)."""

from __future__ import annotations

from timely_llm.experiments.catalog.annealing.fit import FITS, KNOWN, PARAMETERS
from timely_llm.experiments.catalog.annealing.search import ITERATIONS, T0
from timely_llm.policies.annealing.branches import MOST_NODES
from tools.results.page import Command, Page, PageTable, Picture, Ranking

_WORTH = "annealing:reset=on:lengths=quantile:objective=worth:static=off"
_SHOWN = (
    "fcfs",
    "sjf",
    "annealing:search=deadline",
    "annealing",
    "annealing:reset=on",
    "annealing:reset=on:static=off",
    "annealing:reset=on:lengths=quantile",
    _WORTH,
    "annealing:search=exact",
    "deadline",
)
_BRANCH = "annealing:reset=on:search=branch"
_FIGURES = "--figures 12,13,14,15,16,17,18 --sizes 8,40"
_BESIDE_FCFS = (
    "attainment", "attainment_gain", "attainment_points", "latency_s", "latency_change", "g_gain",
)  # fmt: skip
_FRONT = {"attainment": 1, "latency_s": -1}
_COST = (
    "share_of_best", "median_share", "low_share", "worst_share", "share_optimal", "evaluations",
    "milliseconds",
)  # fmt: skip
_SEARCHES = (
    "annealing:accept=literal",
    "annealing:accept=metropolis:best=off:reset=on",
    "annealing",
    "annealing:reset=on:t0=500:iterations=100",
    "annealing:search=exhaustive",
    "annealing:search=exact",
)
_GRID = tuple(
    f"annealing:reset=on:t0={t0}:iterations={count}" for t0 in T0 for count in ITERATIONS[1:]
)
_OF_SERVERS = (
    "g", "g_gain", "attainment", "latency_s", "latency_gain", "search_ms", "evaluations",
    "assign_ms",
)  # fmt: skip

PAGES = (
    Page(
        "annealing_order",
        "Requests at once, by annealing",
        (Command("annealing-order", "annealing-order", seeds=10, minutes=4),),
        Picture(
            "annealing-order",
            ("g", "attainment", "latency_s"),
            "G, attainment and latency over the number of requests, in batches of up to two",
            where={"batch": 2, "policy": ("fcfs", *_SHOWN[4:6], _SHOWN[7], "deadline")},
            lines=True,
        ),
        (
            PageTable(
                "annealing-order",
                ("g", "g_gain", "attainment", "attainment_points", "latency_s", "latency_gain"),
                where={"requests": (6, 10), "policy": _SHOWN},
            ),
        ),
        (Ranking("annealing-order", _FRONT, first="attainment"),),
    ),
    Page(
        "annealing_figures",
        "Requests at once, on other models, devices and engines",
        (
            Command(
                "annealing-figures",
                f"annealing-order {_FIGURES} --policies fcfs,annealing,{_WORTH},deadline",
                seeds=10,
                minutes=12,
            ),
        ),
        Picture(
            "annealing-figures",
            ("attainment", "latency_s"),
            "Attainment and latency of 40 requests in batches of one, by the figure of the paper",
            where={"batch": 1, "requests": 40},
        ),
        (
            PageTable(
                "annealing-figures",
                _BESIDE_FCFS,
                "40 requests in batches of one",
                {"batch": 1, "requests": 40},
            ),
            PageTable(
                "annealing-figures",
                _BESIDE_FCFS,
                "8 requests in batches of up to two, under `annealing`",
                {"batch": 2, "requests": 8, "policy": "annealing"},
            ),
        ),
        (Ranking("annealing-figures", _FRONT, first="attainment"),),
    ),
    Page(
        "annealing_arrivals",
        "Requests at Poisson times, in few rows",
        (
            Command(
                "annealing-arrivals",
                "annealing-order --rates 0.2,0.4,0.8 --sizes 120"
                f" --policies fcfs,slice,annealing,{_WORTH},deadline",
                seeds=5,
                minutes=12,
            ),
        ),
        Picture(
            "annealing-arrivals",
            ("attainment", "latency_s"),
            "Attainment and latency over requests a second, in batches of up to two",
            where={"batch": 2},
            lines=True,
        ),
        (
            PageTable(
                "annealing-arrivals",
                ("attainment", "chat_attainment", "attainment_points", "latency_s", "g"),
            ),
        ),
        (Ranking("annealing-arrivals", _FRONT, first="attainment"),),
    ),
    Page(
        "annealing_search",
        "Searches for an order, and the exact optimum",
        (
            Command("annealing-search", "annealing-search", seeds=5, minutes=4),
            Command(
                "annealing-branch",
                f"annealing-search --policies {_BRANCH} --sizes 10,20,30",
                seeds=2,
                minutes=5,
            ),
        ),
        Picture(
            "annealing-search",
            ("share_of_best", "worst_share", "share_optimal"),
            "Share of the best G, mean and worst, and share of instances with the best order, over"
            " the number of requests, in batches of one",
            where={"batch": 1, "policy": _SEARCHES[:4], "requests": (4, 6, 8, 10)},
            lines=True,
        ),
        (
            PageTable(
                "annealing-search",
                _COST,
                "Batches of one, as in Table 1",
                {"batch": 1, "policy": _SEARCHES},
            ),
            PageTable(
                "annealing-search",
                _COST,
                "Batches of up to two and four",
                {"batch": (2, 4), "requests": (6, 8), "policy": _SEARCHES},
            ),
            PageTable(
                "annealing-search",
                ("g_gain", "evaluations"),
                "First temperature and iterations, as in Figure 8",
                {"requests": (10, 20, 40), "policy": _GRID},
            ),
            PageTable(
                "annealing-branch",
                (
                    "proven",
                    "g_gain_on_start",
                    "most_gain_on_start",
                    "g_gain",
                    "nodes",
                    "milliseconds",
                ),
                f"Branch and bound of up to {MOST_NODES:,} nodes, begun from `annealing:reset=on`",
                papers=False,
            ),
        ),
    ),
    Page(
        "annealing_lengths",
        "What predicted lengths are worth to an order",
        (
            Command("annealing-lengths", "annealing-lengths", seeds=10, minutes=5),
            Command(
                "annealing-figures-lengths", f"annealing-lengths {_FIGURES}", seeds=5, minutes=10
            ),
        ),
        Picture(
            "annealing-lengths",
            ("g", "attainment", "latency_s"),
            "G, attainment and latency over the number of requests, by how lengths are predicted,"
            " in batches of up to four",
            where={"batch": 4, "policy": ("fcfs", "gaussian", "quantile", "10%", "0%")},
            lines=True,
        ),
        (
            PageTable(
                "annealing-lengths",
                ("g", "g_gain", "g_gain_vs_gaussian", "attainment", "latency_s"),
            ),
            PageTable(
                "annealing-figures-lengths",
                _BESIDE_FCFS,
                "Known lengths on the testbeds of Figures 12 to 18: 40 requests in batches of one",
                {"batch": 1, "requests": 40, "policy": "0%"},
            ),
            PageTable(
                "annealing-figures-lengths",
                _BESIDE_FCFS,
                "Known lengths there: 8 requests in batches of up to two",
                {"batch": 2, "requests": 8, "policy": "0%"},
            ),
        ),
    ),
    Page(
        "annealing_fit",
        "Errors of fitted step times",
        (Command("annealing-fit", "annealing-fit", seeds=10, minutes=1),),
        Picture(
            "annealing-fit",
            ("g_vs_fitted", "attainment"),
            "G with a changed coefficient over G with the fitted ones, and attainment",
            where={"policy": "annealing:reset=on", "change": (-0.2, 0.2)},
            lines=True,
        ),
        (
            PageTable(
                "annealing-fit",
                ("g_vs_fitted", "attainment", "latency_s"),
                where={"parameter": PARAMETERS},
            ),
            PageTable(
                "annealing-fit",
                ("latency_error", "g_vs_fitted", "attainment", "latency_s"),
                "Coefficients fitted by least squares to steps of the simulated engine",
                {"parameter": (KNOWN, *FITS)},
            ),
        ),
    ),
    Page(
        "annealing_servers",
        "Requests at once, and copies of them at more servers",
        (Command("annealing-servers", "annealing-servers", seeds=5, minutes=5),),
        Picture(
            "annealing-servers",
            ("g", "attainment", "search_ms"),
            "G, attainment and the time of all searches over the number of servers, with known"
            " lengths",
            where={"lengths": "known", "policy": ("fcfs", "annealing", "annealing:search=exact")},
            lines=True,
        ),
        (
            PageTable(
                "annealing-servers",
                _OF_SERVERS,
                "Learned lengths, assigned as in Algorithm 2, as in Figure 11",
                {"lengths": "learned", "dispatcher": "largest-memory"},
            ),
            PageTable(
                "annealing-servers",
                _OF_SERVERS,
                "Known lengths, assigned as in Algorithm 2",
                {"lengths": "known"},
                papers=False,
            ),
            PageTable(
                "annealing-servers",
                _OF_SERVERS,
                "Learned lengths, assigned by `most-worth`",
                {"lengths": "learned", "dispatcher": "most-worth"},
                papers=False,
            ),
        ),
    ),
)
