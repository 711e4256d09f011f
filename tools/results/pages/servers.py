"""Pages about several servers behind one dispatcher."""

from __future__ import annotations

from tools.results.page import Command, Page, PageTable, Picture

_KINDS = {"unlike": "Three unlike servers", "equal": "Three equal servers"}

PAGES = (
    Page(
        "servers_scale",
        "More servers and as many more robots",
        (Command("servers-scale", "servers-scale", seeds=1, minutes=8),),
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
        ),
    ),
    Page(
        "servers_mixed",
        "Robots and people at several servers",
        (Command("servers-mixed", "servers-mixed", seeds=2, minutes=10),),
        Picture(
            "servers-mixed",
            ("utility", "attainment", "waiting_s"),
            "Mean utility of plans, share of conversations that met their service level, and the"
            " waiting time of robots, for each rule at three unlike servers",
            where={"servers": "unlike", "rate": 2.0, "dies": False},
        ),
        tuple(
            PageTable(
                "servers-mixed",
                (
                    "utility", "utility_vs_round-robin", "urgent_utility", "plan_attainment",
                    "waiting_s", "share_finished", "attainment", "ttft_p95_s",
                ),
                title,
                where={"servers": kind},
            )
            for kind, title in _KINDS.items()
        ),
    ),
)  # fmt: skip
