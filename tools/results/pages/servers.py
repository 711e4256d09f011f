"""Pages about several servers behind one dispatcher."""

from __future__ import annotations

from tools.results.page import Command, Page, PageTable, Picture

_KINDS = {"unlike": "Three unlike servers", "equal": "Three equal servers"}

PAGES = (
    Page(
        "servers_scale",
        "More servers and as many more robots",
        (
            Command("servers-scale", "servers-scale", seeds=3, minutes=24),
            Command(
                "servers-figure-11",
                "servers-scale --policies fcfs,annealing,annealing:reset=on:lengths=quantile:static"
                "=off,deadline --dispatchers largest-memory --servers 1,2,3,4",
                seeds=3,
                minutes=9,
            ),
        ),
        Picture(
            "servers-scale",
            ("utility_vs_one", "plan_attainment"),
            "Utility of a request beside one server's, and the share of plan requests with a first"
            " action in time, over the number of servers, under the default rule",
            where={"robots": "copies", "dispatcher": "most-worth"},
            lines=True,
        ),
        (
            PageTable(
                "servers-scale",
                (
                    "utility", "utility_vs_one", "urgent_utility", "plan_attainment", "goodput",
                    "waiting_s",
                ),
            ),
            PageTable(
                "servers-figure-11",
                ("goodput", "goodput_vs_fcfs", "plan_attainment", "utility", "waiting_s"),
                "The system of Huang et al. 2025 (Figure 11)",
            ),
        ),
    ),
    Page(
        "servers_mixed",
        "Robots and people at several servers",
        (
            Command(
                "servers-mixed",
                "servers-mixed --rates 2 --minutes 0.5 --dispatchers"
                " round-robin,least-outstanding,two-choices,largest-memory,shortest-response,"
                "most-worth,most-worth+hedge",
                seeds=4,
                minutes=12,
            ),
            Command(
                "servers-seeds",
                "servers-mixed --rates 2 --minutes 0.5 --first-seed 4 --dispatchers"
                " round-robin,most-worth",
                seeds=12,
                minutes=9,
            ),
        ),
        Picture(
            "servers-mixed",
            ("utility", "attainment", "waiting_s"),
            "Mean utility of plans, share of conversations that met their service level, and the"
            " waiting time of robots, for each rule with moves at three unlike servers",
            where={"servers": "unlike", "dies": False, "moves": True},
        ),
        (
            *(
                PageTable(
                    "servers-mixed",
                    (
                        "worth_vs_round-robin_moves=False", "worth_vs_round-robin",
                        "worth_vs_most-worth", "utility", "utility_vs_round-robin_moves=False",
                        "utility_vs_round-robin", "urgent_utility", "plan_attainment",
                        "waiting_s", "share_finished", "attainment", "qoe", "stalled_s",
                        "ttft_p95_s",
                    ),
                    title,
                    where={"servers": kind},
                )
                for kind, title in _KINDS.items()
            ),
            PageTable(
                "servers-seeds",
                ("worth_vs_round-robin_moves=False", "worth_vs_round-robin",
                 "utility_vs_round-robin_moves=False", "utility_vs_round-robin", "utility",
                 "attainment", "waiting_s"),
                "Unlike servers on twelve other seeds",
                where={"servers": "unlike", "dispatcher": "most-worth"},
            ),
        ),
    ),
)  # fmt: skip
