"""Pages about robots and people at one engine."""

from __future__ import annotations

from tools.results.page import Command, Page, PageTable, Picture, Ranking
from tools.results.pages.measures import BOTH, BOTH_FRONT, DRAWN_BOTH, SLOW, TIMELY

_IN_BURSTS = (
    "stream", "stream:gate", *TIMELY, "slice", "slice:gate", "timely+slice", "timely+slice:gate",
    "deadline", "deadline:gate",
)  # fmt: skip

PAGES = (
    Page(
        "mixed",
        "Robots and people together",
        (Command("mixed", "mixed", seeds=5, minutes=14),),
        Picture(
            "mixed",
            ("utility", "attainment", "stalled_s"),
            "Mean utility of plans, share of conversations that met their service level, and mean"
            " stall, over conversations a second",
            where={"load": 2, "policy": DRAWN_BOTH},
            lines=True,
        ),
        (PageTable("mixed", BOTH, where={"rate": 2.0}),),
        (Ranking("mixed", BOTH_FRONT),),
    ),
    Page(
        "slow_mixed",
        "Robots and people on a slow device",
        (
            Command(
                "slow-mixed",
                f"mixed --profile {SLOW} --load 1 --rates 0.1,0.3",
                seeds=5,
                minutes=9,
            ),
            Command(
                "fresh-slow",
                f"mixed --profile {SLOW} --load 1 --rates 0.3 --first-seed 500 --policies"
                " stream,slice,deadline,deadline:people=2",
                seeds=5,
                minutes=2,
            ),
            Command(
                "short-slow",
                f"mixed --profile {SLOW} --load 1 --rates 3,6 --lengths 8-25:10-30 --policies"
                " stream:gate,timely:gate,slice:gate,timely+slice:gate,deadline:gate,"
                "deadline:people=0.3:gate",
                seeds=5,
                minutes=4,
            ),
        ),
        Picture(
            "slow-mixed",
            ("utility", "attainment", "stalled_s"),
            "Mean utility of plans, share of conversations that met their service level, and mean"
            " stall, for two rates of conversations",
            where={"policy": DRAWN_BOTH},
        ),
        (
            PageTable("slow-mixed", BOTH),
            PageTable("fresh-slow", BOTH, "On seeds that no other page has"),
            PageTable("short-slow", BOTH, "Short answers, more than the device can serve"),
        ),
        (
            Ranking("slow-mixed", BOTH_FRONT),
            Ranking("fresh-slow", BOTH_FRONT),
            Ranking("short-slow", BOTH_FRONT),
        ),
    ),
    Page(
        "bursts",
        "Bursts of conversations beside plans",
        (
            Command("bursts", "bursts", seeds=5, minutes=6),
            Command(
                "slow-bursts",
                f"bursts --sizes 10,20 --profile {SLOW} --policies {','.join(_IN_BURSTS)}",
                seeds=5,
                minutes=8,
            ),
        ),
        Picture(
            "bursts",
            ("utility", "attainment", "stalled_s"),
            "Mean utility of plans, share of conversations that met their service level, and mean"
            " stall, over the size of the burst",
            where={"policy": DRAWN_BOTH},
            lines=True,
        ),
        (
            PageTable("bursts", BOTH, where={"size": (20, 60)}),
            PageTable("slow-bursts", BOTH, "On a slow device"),
        ),
        (Ranking("bursts", BOTH_FRONT), Ranking("slow-bursts", BOTH_FRONT)),
    ),
)
