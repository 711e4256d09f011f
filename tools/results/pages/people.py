"""Pages about people alone."""

from __future__ import annotations

from timely_llm.experiments.catalog.slice.lengths import OTHERS, REAL_TIME
from tools.results.page import Command, Page, PageTable, Picture, Ranking
from tools.results.pages.measures import (
    BOTH,
    BOTH_FRONT,
    DRAWN_PEOPLE,
    PEOPLE,
    PEOPLE_FRONT,
    SERVICE,
    TIMELY,
)

_SPEEDS = ("orca", "slice", "slice:even=on", "timely+slice", "deadline")
_LONG = (
    "--policies orca,orca:gate,slice,slice:gate,timely+slice,timely+slice:gate,deadline,"
    "deadline:gate"
)
_FEW = (
    "--policies orca,orca:gate,prio:rows=4,prio:rows=4:gate,fastserve:rows=4,slice,slice:gate,"
    "timely+slice,timely+slice:gate,deadline,deadline:gate"
)
_FEW_SHOWN = (
    "orca", "prio:rows=4", "fastserve:rows=4", "slice", "slice:gate", "timely+slice", "deadline",
    "deadline:gate",
)  # fmt: skip
_FEW_WITH_ROBOTS = (
    "timely", "timely:rows=256:admissions=8", "timely:streams=sentences", "slice", "timely+slice",
    "deadline", "deadline:gate",
)  # fmt: skip
COMPLETION = ("completion_s_vs_slice", "rt_completion_s_vs_slice", "nrt_completion_s_vs_slice")

PAGES = (
    Page(
        "speeds",
        "Nine answers of three speeds",
        (Command("speeds", "slice-static", seeds=0, minutes=0.1),),
        Picture(
            "speeds",
            ("together_tpot_ms", "max_gap_s"),
            "Milliseconds a token while all nine are there, and the longest gap, by type of task",
            where={"policy": _SPEEDS},
        ),
        (
            PageTable(
                "speeds",
                ("tpot_slo_ms", "tpot_ms", "together_tpot_ms", "decoding_rate", "attainment",
                 "qoe", "max_gap_s"),
                where={"policy": ("fastserve", "timely:streams=sentences", *_SPEEDS)},
            ),
        ),
    ),
    Page(
        "rate",
        "Tasks come faster",
        (Command("rate", "slice-rate", seeds=5, minutes=11),),
        Picture(
            "rate",
            ("attainment", "rt_attainment", "stalled_s"),
            "Shares of all and of real-time tasks that met their service level, and the mean stall"
            " of a listener, over tasks a second",
            where={"policy": DRAWN_PEOPLE},
        ),
        (PageTable("rate", PEOPLE, where={"rate": (1.0, 2.0, 3.0, 5.0)}),),
        (Ranking("rate", PEOPLE_FRONT),),
    ),
    Page(
        "ratio",
        "More or fewer real-time tasks",
        (Command("ratio", "slice-ratio", seeds=5, minutes=12),),
        Picture(
            "ratio",
            ("attainment", "rt_attainment", "nrt_attainment"),
            "Shares of all, of real-time and of other tasks that met their service level, over the"
            " share of real-time tasks",
            where={"policy": DRAWN_PEOPLE},
        ),
        (
            PageTable(
                "ratio", PEOPLE, where={"rt_ratio": (0.1, 0.5, 0.9), "policy": DRAWN_PEOPLE}
            ),
        ),
        (Ranking("ratio", PEOPLE_FRONT),),
    ),
    Page(
        "lengths",
        "Lengths of answers",
        (
            Command("tasks", "slice-dynamic", seeds=5, minutes=1.2),
            Command("orca-lengths", "slice-lengths", seeds=3, minutes=0.5),
            Command(
                "other-lengths",
                "slice-rate --lengths 4-12:20-80,4-40:20-80,15-30:40-160,8-25:80-320 --rates 1,3"
                " --policies orca,slice,slice:gate,deadline,deadline:gate",
                seeds=5,
                minutes=4,
            ),
        ),
        Picture(
            "other-lengths",
            ("attainment", "rt_attainment"),
            "Shares of all and of real-time tasks that met their service level, at one and three"
            " tasks a second, for four lengths of answers",
        ),
        (
            PageTable(
                "tasks",
                (*SERVICE, "qoe", *COMPLETION),
                "Figures 7 to 9 of Zhou et al. 2025",
                {"policy": (*DRAWN_PEOPLE, "fastserve")},
            ),
            PageTable(
                "other-lengths",
                PEOPLE,
                "Other lengths",
                {"lengths": ("4-40:20-80", "15-30:40-160", "8-25:80-320")},
                papers=False,
            ),
            PageTable(
                "orca-lengths",
                ("attainment", "rt_attainment", "nrt_attainment", "distance"),
                "Orca by the lengths of answers",
                {"lengths": tuple(f"{a}:{b}" for a in REAL_TIME for b in OTHERS[1:])},
                papers=False,
            ),
        ),
        (
            Ranking("tasks", PEOPLE_FRONT),
            Ranking("other-lengths", PEOPLE_FRONT),
        ),
    ),
    Page(
        "devices_and_bounds",
        "Other step times, prompts and declared bounds",
        (
            Command(
                "released",
                "slice-rate --profile rtx4060ti-released --rates 1,3,7 --policies"
                " orca,slice,slice:gate,timely+slice,timely+slice:gate,deadline,deadline:gate",
                seeds=5,
                minutes=6,
            ),
            Command(
                "charged",
                "slice-rate --charged --rates 1,3 --policies"
                " orca,slice,slice:gate,timely+slice,timely+slice:gate,deadline,deadline:gate",
                seeds=5,
                minutes=4,
            ),
            Command(
                "declared",
                "slice-rate --bounds 0.5,1,4 --rates 2 --policies"
                " slice,slice:gate,timely+slice,timely+slice:gate,deadline,deadline:gate",
                seeds=5,
                minutes=2,
            ),
            Command(
                "ttft",
                "slice-rate --rates 2 --ttft 10 --policies slice,slice:gate,deadline,deadline:gate",
                seeds=5,
                minutes=1.5,
            ),
        ),
        Picture(
            "released",
            ("attainment", "rt_attainment", "stalled_s"),
            "Shares that met their service level and the mean stall, over tasks a second, with the"
            " released step times",
            lines=True,
        ),
        (
            PageTable("released", PEOPLE, "Step times of the released code", papers=False),
            PageTable("charged", PEOPLE, "Prompts that take time", papers=False),
            PageTable(
                "declared", PEOPLE, "Declared bounds over the longest answer", papers=False
            ),
            PageTable("ttft", PEOPLE, "10 s to the first token", papers=False),
        ),
        (
            Ranking("released", PEOPLE_FRONT),
            Ranking("charged", PEOPLE_FRONT),
            Ranking("declared", PEOPLE_FRONT),
            Ranking("ttft", PEOPLE_FRONT),
        ),
    ),
    Page(
        "long_steps",
        "Steps that take most of a token's time",
        (
            Command(
                "orin",
                f"slice-ratio --profile orin-llama3-8b --ratios 0,0.1,0.5 --rates 0.6,1.5 {_LONG}",
                seeds=5,
                minutes=8,
            ),
            Command(
                "thor",
                f"slice-ratio --profile thor-gemma4-12b --ratios 0,0.1,0.5 --rates 0.6 {_LONG}",
                seeds=5,
                minutes=6,
            ),
        ),
        Picture(
            "orin",
            ("rt_attainment", "nrt_attainment", "stalled_s"),
            "Shares of real-time tasks and of conversations that met their service level, and the"
            " mean stall of a listener, by the share of real-time tasks",
            where={"rate": (1.5,), "policy": DRAWN_PEOPLE},
        ),
        (
            PageTable(
                "orin", ("objective", *PEOPLE), papers=False,
                title="Steps of 80 ms for one row, 86 for eight",
            ),
            PageTable(
                "thor", ("objective", *PEOPLE), papers=False,
                title="Steps of 99 ms for one row, 108 for eight",
            ),
        ),
        (Ranking("orin", PEOPLE_FRONT), Ranking("thor", PEOPLE_FRONT)),
    ),
    Page(
        "few_rows",
        "Few rows in a step",
        (
            Command(
                "few-rows",
                "slice-rate --profile rtx4090-llama3-8b --max-rows 4 --ratios 0,0.5"
                f" --rates 0.6,1.2 {_FEW}",
                seeds=5,
                minutes=9,
            ),
            Command(
                "few-rows-orin",
                "slice-rate --profile orin-llama3-8b --max-rows 4 --ratios 0,0.1"
                f" --rates 0.15,0.3 {_LONG}",
                seeds=5,
                minutes=4,
            ),
            Command(
                "few-rows-mixed",
                "mixed --max-rows 4 --load 1,2 --rates 0.5,1 --policies stream,stream:gate,"
                f"{','.join(TIMELY)},timely:streams=sentences,slice,slice:gate,timely+slice,"
                "timely+slice:gate,deadline,deadline:gate",
                seeds=5,
                minutes=9,
            ),
        ),
        Picture(
            "few-rows",
            ("nrt_attainment", "stalled_s", "max_gap_s"),
            "Share of conversations that met their service level, mean stall of a listener, and"
            " longest gap in an answer, by tasks a second",
            where={"rt_ratio": (0.0,), "policy": DRAWN_PEOPLE},
        ),
        (
            PageTable(
                "few-rows", PEOPLE, "Steps of 22 ms", {"policy": _FEW_SHOWN}, papers=False,
            ),
            PageTable("few-rows-orin", PEOPLE, "Steps of 82 ms", {"rate": 0.3}, papers=False),
            PageTable(
                "few-rows-mixed", BOTH, "Steps of 22 ms, with robots", {"policy": _FEW_WITH_ROBOTS}
            ),
        ),
        (
            Ranking("few-rows", PEOPLE_FRONT),
            Ranking("few-rows-orin", PEOPLE_FRONT),
            Ranking("few-rows-mixed", BOTH_FRONT),
        ),
    ),
    Page(
        "slice_options",
        "What SLICE's own options change",
        (
            Command("adaptor", "slice-adaptor", seeds=5, minutes=2.5),
            Command("weight", "slice-weight", seeds=5, minutes=2.5),
            Command("restarts", "slice-restarts", seeds=5, minutes=0.5),
        ),
        Picture(
            "adaptor",
            ("objective", "nrt_attainment", "stalled_s"),
            "The objective, the share of conversations that met their service level, and the mean"
            " stall, over tasks a second",
            lines=True,
        ),
        (
            PageTable("adaptor", ("objective", *PEOPLE), "Utility adaptor, preemption controller"),
            PageTable("weight", PEOPLE, "The worth of a real-time task"),
            PageTable(
                "restarts",
                ("cycles", "steps_a_cycle", "at_tasks", "at_segments", "at_cycle_ends",
                 "urgent_utility", "attainment"),
                "What restarts its cycle, beside plans",
            ),
        ),
        (Ranking("weight", PEOPLE_FRONT),),
    ),
    Page(
        "overload",
        "Twenty minutes of overload",
        (Command("overload", "slice-overload", seeds=3, minutes=15),),
        Picture(
            "overload",
            ("attainment", "max_ttft_s", "stalled_s"),
            "Share that met its service level, longest wait for a first token, and mean stall",
            where={"policy": DRAWN_PEOPLE},
        ),
        (
            PageTable(
                "overload",
                ("attainment", "objective", "rt_attainment", "qoe", "max_ttft_s", "rt_late_share",
                 "max_late_s", "stalled_s", "max_stall_s", "max_gap_s"),
            ),
        ),
        (Ranking("overload", PEOPLE_FRONT),),
    ),
)  # fmt: skip
