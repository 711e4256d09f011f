"""Pages about what policies are made of: batches, order, predictions, options."""

from __future__ import annotations

from collections.abc import Sequence

from timely_llm.experiments.catalog.timelyllm.arm import ALL
from timely_llm.experiments.policy_spec import FIXED, SERVED
from tools.results.page import Command, Page, PageTable, Picture, Ranking, Timelines
from tools.results.pages.measures import (
    BOTH,
    BOTH_FRONT,
    PEOPLE,
    PEOPLE_FRONT,
    PLANS_FRONT,
    SLOW,
    TIMELY,
)

_PREDICTED = (*TIMELY, f"{SERVED}:open-loop", "deadline")

_MISJUDGED = (
    "timely+slice", "timely+slice:gate", "slice", "slice:gate", "deadline", "deadline:gate",
)  # fmt: skip
_RATIOS = (0.7, 1.4)
"""Predicted over true step times."""


def _under(policies: Sequence[str], word: str) -> tuple[str, ...]:
    """Return policies under a word with each ratio; the ratio 1 has no word."""
    return tuple(f"{one}:{word}={ratio}" for one in policies for ratio in _RATIOS)


_WRONG = tuple(text for one in _MISJUDGED for text in (one, *_under((one,), "step-times")))
_WRONG_AT_FIRST = "first-step-times"
_SHOWN = (
    "orca", "stream", *_WRONG, *_under(("deadline", "deadline:gate"), _WRONG_AT_FIRST),
)  # fmt: skip
_ALL_WRONG = ",".join((*_WRONG, *_under(_MISJUDGED, _WRONG_AT_FIRST)))


PAGES = (
    Page(
        "bursts_of_tasks",
        "Two tasks of one burst",
        (Command("bursts-of-tasks", "timelyllm-trace", seeds=3, minutes=0.3),),
        Timelines(
            "bursts-of-tasks",
            ("fcfs", "timely", "deadline"),
            "When three drones of one burst wait and execute, and when the model works for them",
        ),
        (
            PageTable(
                "bursts-of-tasks",
                ("urgent_response_s", "normal_response_s", "urgent_utility", "normal_utility",
                 "waiting_s"),
            ),
        ),
    ),
    Page(
        "batch",
        "The size of the batch",
        (Command("batch", "timelyllm-batch", seeds=5, minutes=3),),
        Picture(
            "batch",
            ("utility", "urgent_utility"),
            "Mean utility and utility of urgent tasks over the largest batch",
            where={"policy": ("fcfs", "fcfs:harness", "timely", "deadline")},
            lines=True,
        ),
        (
            PageTable(
                "batch",
                ("utility", "utility_unclamped", "urgent_utility", "normal_utility", "waiting_s"),
                where={"batch": (1, 4, 6, 8, 12, 16, "adaptive", "its own")},
            ),
        ),
    ),
    Page(
        "order",
        "The order of segments",
        (Command("order", "timelyllm-policies", seeds=5, minutes=5),),
        Picture(
            "order",
            ("utility", "urgent_utility", "normal_utility"),
            "Mean utility of all tasks, of urgent and of normal ones, over the load",
            where={"policy": (f"fcfs-segments:{FIXED}", f"edf:{FIXED}", "timely", "deadline")},
            lines=True,
        ),
        (
            PageTable(
                "order",
                ("utility", "urgent_utility", "normal_utility", "urgent_over_requests",
                 "urgent_vs_timely", "share_finished", "waiting_s"),
            ),
        ),
        (Ranking("order", PLANS_FRONT),),
    ),
    Page(
        "predictions",
        "Predicted execution times",
        tuple(
            Command(
                f"predictions-{task}-{durations}",
                f"{line} --durations {durations} --policies {','.join(_PREDICTED)}",
                seeds=5,
                minutes=2.2)
            for task, line in (
                ("drones", "timelyllm-policies --load 2"),
                ("arms", "timelyllm-arm --load 1"),
            )
            for durations in ("noisy", "model")
        ),
        Picture(
            "predictions-arms-noisy",
            ("utility", "waiting_s"),
            "Utility and waiting of robot arms for each policy, with predictions of random error",
            where={"task": ALL},
        ),
        tuple(
            PageTable(
                f"predictions-{task}-{durations}",
                ("utility", "waiting_s"),
                f"{title}, {how}",
                {"task": ALL} if task == "arms" else {},
            )
            for task, title in (("drones", "Drones"), ("arms", "Arms"))
            for durations, how in (
                ("noisy", "true times with a random error"), ("model", "the server's model")
            )
        ),
    ),
    Page(
        "step_times",
        "Wrong step times",
        (
            Command(
                "wrong-slow",
                f"mixed --profile {SLOW} --load 1 --rates 0.3 --policies"
                f" stream,{_ALL_WRONG}",
                seeds=5,
                minutes=6,
            ),
            Command(
                "wrong-tasks",
                f"slice-rate --rates 2,5 --policies orca,{_ALL_WRONG}",
                seeds=5,
                minutes=5,
            ),
        ),
        Picture(
            "wrong-slow",
            ("utility", "attainment", "stalled_s"),
            "Mean utility of plans, share of conversations that met their service level, and mean"
            " stall, on a slow device, with right and with wrong step times",
            {"policy": ("stream", "slice", *_under(("slice",), "step-times"), "deadline",
                        *_under(("deadline",), "step-times"),
                        *_under(("deadline",), _WRONG_AT_FIRST))},
        ),
        (
            PageTable(
                "wrong-slow", BOTH, "Robots and people on the slow device", {"policy": _SHOWN}
            ),
            PageTable(
                "wrong-tasks", PEOPLE, "People alone, on the same device", {"policy": _SHOWN},
                papers=False,
            ),
        ),
        (Ranking("wrong-slow", BOTH_FRONT), Ranking("wrong-tasks", PEOPLE_FRONT)),
    ),
    Page(
        "optimal",
        "How far from the best schedule",
        (Command("optimal", "optimal", seeds=3, minutes=0.2),),
        Picture(
            "optimal",
            ("share_of_best", "worst_share"),
            "Share of the best utility, mean and worst, by prompt tokens and requests",
        ),
        (PageTable("optimal", ("share_of_best", "worst_share", "utility", "best_utility")),),
        (Ranking("optimal", {"share_of_best": 1, "worst_share": 1}, first="share_of_best"),),
    ),
    Page(
        "ablation",
        "What each ingredient of the default policy is worth",
        (
            Command("ablation", "ablation --first-seed 400", seeds=5, minutes=26),
            Command(
                "ablation-gate",
                "ablation --first-seed 400 --policies deadline,deadline:gate",
                seeds=5,
                minutes=5,
            ),
            Command(
                "ablation-canceled",
                "ablation --first-seed 400 --canceled 0.3"
                f" --policies deadline,{','.join(f'deadline:lead_s={s}' for s in (2, 0.5, 0))}",
                seeds=5,
                minutes=6,
            ),
        ),
        Picture(
            "ablation",
            ("utility", "attainment", "waiting_s"),
            "Utility of plans, attainment of answers, and waiting of robots, of each variant, with"
            " robots and people on a slow device",
            where={"workload": "wid1"},
        ),
        (
            PageTable(
                "ablation",
                ("utility", "urgent_utility", "waiting_s", "longest_response_s",
                 "utility_vs_deadline"),
                "Robots alone, `wid2`",
                where={"workload": "wid2", "load": (1, 4)},
            ),
            PageTable(
                "ablation",
                ("utility", "urgent_utility", "waiting_s", "longest_response_s", "attainment",
                 "qoe", "stalled_s"),
                "Robots and people, `wid1`, half a conversation a second, on a slow device",
                where={"workload": "wid1"},
            ),
            PageTable(
                "ablation-gate",
                ("utility", "attainment", "qoe", "share_refused", "max_gap_s", "stalled_s"),
                "Robots and people, with the gate and without",
                where={"workload": "wid1"},
            ),
            PageTable(
                "ablation-canceled",
                ("utility", "urgent_utility", "waiting_s", "longest_response_s", "share_in_vain"),
                "Robots alone, `wid2`; 0.3 of the plans are canceled half way through a segment",
            ),
        ),
    ),
    Page(
        "one_request",
        "What one request costs, on a real engine",
        (
            Command("phases", "timelyllm-phases", seeds=0, minutes=0.5),
            Command("overhead", "timelyllm-overhead", minutes=1),
            Command("resume", "engine-resume --engine transformers", seeds=0, minutes=0.5),
        ),
        Picture(
            "phases",
            ("ms", "cpu_ms"),
            "Milliseconds of each phase of a request, by the clock and of the CPU",
        ),
        (
            PageTable("phases", ("tokens", "ms", "share", "cpu_ms"), "Phases"),
            PageTable(
                "overhead",
                ("overhead_ms", "overhead_share", "paced_share", "generation_ms", "turn_ms"),
                "What segments and decisions add under `timely`",
                {"policy": "timely"},
            ),
            PageTable(
                "resume",
                ("recomputed_tokens", "next_token_ms", "next_token_cpu_ms"),
                "How a suspended plan goes on",
            ),
        ),
    ),
)  # fmt: skip
