"""Pages about robots alone."""

from __future__ import annotations

from timely_llm.experiments.results.metrics import UNBOUNDED
from tools.results.page import Command, Page, PageTable, Picture, Ranking
from tools.results.pages.measures import (
    DRAWN_PLANS,
    PLANS,
    PLANS_FRONT,
    SLOW,
    TIMELY,
    VERY_SLOW,
)

GAINS = ("utility", "utility_unclamped", "utility_gain", "share_first", "share_finished",
         "response_s", "waiting_s", "waiting_s_vs_fcfs")  # fmt: skip

_DRONES = ("utility", "urgent_utility", "normal_utility", "urgent_utility_unclamped",
           "urgent_gain_vs_harness", "share_first", "share_finished", "waiting_s")  # fmt: skip
_ARMS = ("utility", "utility_unclamped", "utility_gain", "utility_relative_gain", "share_first",
         "share_finished", "waiting_s", "waiting_s_vs_fcfs")  # fmt: skip
_READ = ("fcfs", "stream", "timely:segment_tokens=20:order=reading", "deadline")
_PLANNERS = ("fcfs", "stream", *TIMELY, "deadline")
_ON_SLOW = ("slice", "stream", *TIMELY, "deadline")

PAGES = (
    Page(
        "drones",
        "Drones under load",
        (Command("drones", "timelyllm-drone", seeds=5, minutes=5),),
        Picture(
            "drones",
            ("utility", "urgent_utility", "normal_utility"),
            "Mean utility of all tasks, of urgent and of normal ones, over the load",
            where={"workload": "wid2", "policy": DRAWN_PLANS},
            lines=True,
        ),
        (
            PageTable("drones", _DRONES, "High load, `wid2`", {"workload": "wid2"}),
            PageTable("drones", _DRONES, "Low load, `wid1`", {"workload": "wid1", "load": 1}),
        ),
        (Ranking("drones", PLANS_FRONT),),
    ),
    Page(
        "published_trace",
        "The published trace of drones",
        (
            Command(
                "published-trace",
                "timelyllm-drone --trace {published}/lrtrace_drone_high.jsonl"
                f" --policies {','.join(_PLANNERS)}",
                seeds=5,
                minutes=5.5,
            ),
        ),
        Picture(
            "published-trace",
            ("utility", "urgent_utility", "normal_utility"),
            "Mean utility of all tasks, of urgent and of normal ones, over the load",
            where={"policy": DRAWN_PLANS},
            lines=True,
        ),
        (PageTable("published-trace", PLANS),),
        (Ranking("published-trace", PLANS_FRONT),),
    ),
    Page(
        "slow_devices",
        "Slow devices and expensive prompts",
        (
            Command(
                "slow-drones",
                f"timelyllm-drone --profile {SLOW} --policies {','.join(_ON_SLOW)}",
                seeds=5,
                minutes=11,
            ),
            Command(
                "uncached-drones",
                f"timelyllm-drone --load 1 --policies {','.join(_PLANNERS)} --uncached",
                seeds=5,
                minutes=3.8,
            ),
            Command(
                "very-slow-drones",
                f"timelyllm-drone --profile {VERY_SLOW} --load 1,2 --policies {','.join(_ON_SLOW)}",
                seeds=5,
                minutes=6.2,
            ),
        ),
        Picture(
            "slow-drones",
            ("utility", "urgent_utility", "normal_utility"),
            "Mean utility of all tasks, of urgent and of normal ones, over the load",
            where={"workload": "wid2", "policy": ("slice", *DRAWN_PLANS[1:])},
            lines=True,
        ),
        (
            PageTable(
                "slow-drones",
                PLANS,
                "Steps of 26 ms for one row, 129 for nine: `wid2`",
                {"workload": "wid2"},
            ),
            PageTable(
                "very-slow-drones",
                PLANS,
                "Steps of 99 ms for one row, 108 for eight: `wid2`",
                {"workload": "wid2"},
            ),
            PageTable(
                "uncached-drones",
                PLANS,
                "Prompts that are computed whole",
                {"policy": tuple(f"{name}:uncached" for name in _PLANNERS)},
            ),
        ),
        (
            Ranking("slow-drones", PLANS_FRONT),
            Ranking("very-slow-drones", PLANS_FRONT),
            Ranking("uncached-drones", PLANS_FRONT),
        ),
    ),
    Page(
        "row_cost",
        "The cost of a row",
        (Command("row-cost", "row-cost", seeds=3, minutes=0.6),),
        Picture(
            "row-cost",
            ("utility", "urgent_utility"),
            "Mean utility and utility of urgent tasks over the milliseconds that a row costs",
            where={"policy": DRAWN_PLANS},
            lines=True,
        ),
        (PageTable("row-cost", ("utility", "urgent_utility", "normal_utility", "waiting_s")),),
        (Ranking("row-cost", PLANS_FRONT),),
    ),
    Page(
        "urgent",
        "Urgent plans at once",
        (Command("urgent", "urgent", seeds=5, minutes=1.2),),
        Picture(
            "urgent",
            ("utility", "plan_attainment"),
            "Mean utility of urgent plans, and the share with a first action in time, over their"
            " number",
            where={"policy": ("stream", "prio:rows=8", "slice", "timely", UNBOUNDED, "deadline")},
            lines=True,
        ),
        (
            PageTable(
                "urgent",
                ("utility", "utility_unclamped", "plan_attainment", "response_s",
                 "longest_response_s", "waiting_s"),
            ),
        ),
        (Ranking("urgent", {"utility": 1, "plan_attainment": 1, "waiting_s": -1}),),
    ),
    Page(
        "arms",
        "Robot arms with long plans",
        (Command("arms", "timelyllm-arm", seeds=5, minutes=10),),
        Picture(
            "arms",
            ("utility_unclamped", "waiting_s_vs_fcfs"),
            "Utility, below 0 if late, and waiting over that of whole plans, for three loads",
            where={"task": "10 Desk cleaning", "policy": DRAWN_PLANS},
            lines=True,
        ),
        (PageTable("arms", _ARMS, where={"task": "10 Desk cleaning"}),),
        (Ranking("arms", {"utility": 1, "share_finished": 1, "waiting_s": -1}, first="utility"),),
    ),
    Page(
        "stories",
        "Stories by the sentence",
        (Command("stories", "timelyllm-chatbot", seeds=5, minutes=10),),
        Picture(
            "stories",
            ("utility_unclamped", "waiting_s"),
            "Utility, below 0 if late, and waiting of readers, for each policy and boundary",
            where={"profile": "rtx4090-llama3-8b", "load": 1, "policy": _READ},
        ),
        (
            PageTable("stories", GAINS, "Llama 3 8B", {"profile": "rtx4090-llama3-8b"}),
            PageTable("stories", GAINS, "Phi-3 mini", {"profile": "rtx4090-phi3-mini", "load": 1}),
        ),
        (Ranking("stories", PLANS_FRONT, first="utility"),),
    ),
    Page(
        "memory",
        "Little KV memory, with swap to the host and without",
        (Command("memory", "timelyllm-memory", seeds=5, minutes=7.5),),
        Picture(
            "memory",
            ("utility", "waiting_s"),
            "Mean utility and waiting of long plans by the tokens of KV, with swap and without",
            where={"workload": "wid3", "policy": ("stream", "timely", "deadline")},
        ),
        (
            PageTable(
                "memory",
                ("utility", "share_first", "share_finished", "waiting_s", "evictions",
                 "recomputed_tokens", "loaded_tokens"),
                "Long plans of arms, `wid3`",
                {"workload": "wid3", "kv_tokens": (5200, 42000)},
            ),
        ),
        (Ranking("memory", PLANS_FRONT),),
    ),
    Page(
        "fleet",
        "A fleet of robots at one server",
        (Command("fleet", "fleet", seeds=5, minutes=6.5),),
        Picture(
            "fleet",
            ("qualified_per_min", "slo_attainment", "starvation_frequency"),
            "Plans done in time a minute, the share of requests in time, and starvation over the"
            " number of robots, a line for each policy",
            where={"policy": ("dedicated", "fcfs", "stream", UNBOUNDED, "deadline")},
        ),
        (
            PageTable(
                "fleet",
                ("qualified_per_min", "qualified_per_min_vs_stream",
                 "qualified_per_min_vs_dedicated", "qualified_per_server_min", "utility_per_min",
                 "slo_attainment", "task_latency_s"),
                "What the fleet gets done",
                {"robots": (10, 100, 300)},
            ),
            PageTable(
                "fleet",
                ("useful_actions", "starvation_frequency", "starvation_duration_s",
                 "action_age_p50_s", "action_age_p95_s", "fairness"),
                "What the robots wait for",
                {"robots": (100, 300)},
            ),
        ),
        (
            Ranking(
                "fleet",
                {"utility_per_min": 1, "slo_attainment": 1, "starvation_frequency": -1},
                first="utility_per_min",
                without=("dedicated",),
            ),
            Ranking(
                "fleet",
                {},
                first="qualified_per_min",
                without=("dedicated",),
            ),
        ),
    ),
)  # fmt: skip
