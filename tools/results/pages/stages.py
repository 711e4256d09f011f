"""Pages about a model in stages."""

from __future__ import annotations

from collections.abc import Mapping

from timely_llm.experiments.results.reported import AHN_STOCK, in_stages
from tools.results.page import Command, Comparison, Page, PageTable, Picture, Ranking, Timelines
from tools.results.pages.measures import BOTH, BOTH_FRONT

_STOCK = AHN_STOCK
_BUDGET, _PAPER, _THROTTLE, _CYCLE, _KEPT = map(
    in_stages, ("budget-only", "paper", "throttle", "cycle", "cycle-kept")
)
_OTHERS = {_STOCK: "stock", _BUDGET: "budget", _PAPER: "paper", _THROTTLE: "throttle"}
_CELLS = "--links blocking,overlapping --bandwidths 100,1000,10000 --kv limited,unlimited"
_STAGES = ("completion_s", "idle_share", "idle_1", "idle_2", "idle_3", "idle_4", "steps")
_DUE = [
    f"{policy}:micro-batches={rule}"
    for policy in ("stream", "deadline")
    for rule in ("cycle", "cycle-due", "cycle-own")
]
_COLUMNS = (
    "completion_s", "completion_vs_stock", "proc_s", "idle_s", "idle_share", "recomputed_tokens",
    "bound_s",
)  # fmt: skip
_SEVERAL = "64/256/256,128/256/256,32/512/512,64/512/512,32/1024/1024"
_OF_ALL_RULES = {
    _SEVERAL: 10,
    "256/256/256": 5,
    "128/512/512": 5,
    "64/1024/1024": 6,
    "32/2048/2048": 7,
    "64/2048/2048": 15,
}
"""Workloads of each command with all rules, and its minutes."""
_OF_BUDGETS = {
    _SEVERAL: 15,
    "256/256/256": 6,
    "128/512/512": 8,
    "64/1024/1024": 10,
    "32/2048/2048": 15,
    "64/2048/2048": 30,
}
"""The same with static budgets."""
_BUDGETS = "--budgets 2048,256,512,1024,4096,8192"


def _in_cells(name: str, words: str, minutes: Mapping[str, float]) -> tuple[Command, ...]:
    """Return commands in all cells of links, bandwidths and memory, some workloads each."""
    return tuple(
        Command(
            name if workloads == _SEVERAL else f"{name}-{workloads.replace('/', '-')}",
            f"pipeline-offline {words}--workloads {workloads} {_CELLS}",
            seeds=0,
            minutes=longest,
        )
        for workloads, longest in minutes.items()
    )


_CELL_COMMANDS = _in_cells("pipeline-cells", "", _OF_ALL_RULES)
_BUDGET_COMMANDS = _in_cells(
    "pipeline-static", f"--policies {_STOCK},{_CYCLE} {_BUDGETS} ", _OF_BUDGETS
)


PAGES = (
    Page(
        "pipeline_offline",
        "Requests at once, at a model in stages",
        (
            Command(
                "pipeline-offline",
                "pipeline-offline --workloads 64/256/256,128/256/256,32/512/512",
                seeds=0,
                minutes=3,
            ),
            Command(
                "pipeline-offline-long",
                "pipeline-offline --workloads 256/256/256,64/512/512,128/512/512,"
                "32/1024/1024,64/1024/1024,32/2048/2048",
                seeds=0,
                minutes=6,
            ),
            Command(
                "pipeline-unlimited",
                f"pipeline-offline --policies {_STOCK},{_PAPER},{_CYCLE} --kv unlimited --workloads"
                " 64/256/256,128/256/256,256/256/256",
                seeds=0,
                minutes=2,
            ),
        ),
        Picture(
            "pipeline-offline",
            ("completion_s", "idle_share"),
            "Completion and idle share of three workloads under each rule of micro-batches",
        ),
        (
            PageTable("pipeline-offline", _COLUMNS, "Paper's setting, with the paper's numbers"),
            PageTable(
                "pipeline-offline-long",
                _COLUMNS,
                "The same with more and longer requests",
                where={"policy": (_STOCK, _BUDGET, _PAPER, _CYCLE)},
            ),
            PageTable(
                "pipeline-unlimited", _COLUMNS, "The same without a limit of KV", papers=False
            ),
        ),
    ),
    Page(
        "pipeline_kept",
        "What evictions gain, at a model in stages",
        (
            Command(
                "pipeline-kept",
                f"pipeline-offline --policies {_STOCK},{_CYCLE},{_KEPT} --workloads"
                " 64/1024/1024,32/2048/2048 --links blocking,overlapping --bandwidths"
                " 100,1000,10000",
                seeds=0,
                minutes=5,
            ),
        ),
        Picture(
            "pipeline-kept",
            ("completion_vs_stock",),
            "Completion over that of vLLM's rule with and without evictions for a prompt, where"
            " transfers block and links have 1 Gbit/s",
            where={"link": "blocking", "mbit": 1000.0},
        ),
        (
            PageTable(
                "pipeline-kept",
                ("completion_s", "completion_vs_stock", "idle_share", "recomputed_tokens"),
                "KV limited",
                papers=False,
            ),
        ),
    ),
    Page(
        "pipeline_settings",
        "Links, bandwidths, memory and boxes of stages",
        (
            Command(
                "pipeline-settings",
                "pipeline-offline --workloads 64/256/256 --links blocking,overlapping --bandwidths"
                " 100,1000,10000 --kv limited,unlimited",
                seeds=0,
                minutes=4,
            ),
            Command(
                "pipeline-boxes",
                f"pipeline-offline --policies {_STOCK},{_PAPER},{_THROTTLE},{_CYCLE} --workloads"
                " 64/256/256 --pipelines rtx4070x4-llama2-13b,unlike4-llama2-13b,"
                "unlike4-split-llama2-13b,one-box-llama2-13b",
                seeds=0,
                minutes=1,
            ),
            Command(
                "pipeline-budgets",
                f"pipeline-offline --policies {_STOCK} --workloads 64/256/256 --budgets"
                " 2048,256,512,1024,4096,8192",
                seeds=0,
                minutes=0.5,
            ),
        ),
        Picture(
            "pipeline-settings",
            ("completion_s",),
            "Completion of 64 requests under each rule of micro-batches, by bandwidth, where"
            " transfers overlap and KV is limited",
            where={"link": "overlapping", "kv": "limited"},
        ),
        (
            PageTable(
                "pipeline-settings",
                ("completion_s", "completion_vs_stock", "idle_share", "recomputed_tokens"),
                "Links, bandwidths and KV, 64/256/256",
                papers=False,
            ),
            PageTable(
                "pipeline-boxes",
                ("completion_s", "completion_vs_stock", "idle_share", "bound_s"),
                "Unlike boxes, split layers, one box, 64/256/256",
                where={"policy": (_STOCK, _THROTTLE, _CYCLE)},
                papers=False,
            ),
            PageTable(
                "pipeline-budgets",
                ("completion_s", "idle_share", "recomputed_tokens"),
                "Static budgets, 64/256/256",
                papers=False,
            ),
        ),
    ),
    Page(
        "pipeline_cells",
        "Every workload, link, bandwidth and memory of stages",
        _CELL_COMMANDS,
        Picture(
            "pipeline-cells",
            ("completion_vs_stock",),
            "Completion over that of vLLM's rule for five workloads under each rule of"
            " micro-batches, where transfers block, links have 1 Gbit/s and KV is limited",
            where={"link": "blocking", "kv": "limited", "mbit": 1000.0},
        ),
        (
            PageTable(
                "pipeline-cells",
                ("completion_s", "idle_share", "recomputed_tokens"),
                "Seconds of 64/512/512 where transfers overlap and KV is limited",
                where={"workload": "64/512/512", "link": "overlapping", "kv": "limited"},
                papers=False,
            ),
        ),
        comparisons=(
            Comparison(
                tuple(one.name for one in _CELL_COMMANDS),
                _CYCLE,
                "completion_s",
                "workload",
                _OTHERS,
                "This package's rule over the best other one",
                named=True,
            ),
            *(
                Comparison(
                    tuple(one.name for one in _CELL_COMMANDS),
                    _PAPER,
                    measure,
                    "workload",
                    {_STOCK: "stock"},
                    title,
                )
                for measure, title in (
                    ("completion_s", "The paper's rules over vLLM's"),
                    ("idle_s", "The same, idle seconds of the first stage"),
                )
            ),
        ),
    ),
    Page(
        "pipeline_budgets",
        "Static token budgets of a model in stages",
        (
            *_BUDGET_COMMANDS,
            Command(
                "pipeline-static-plans",
                "pipeline-plans --policies stream,stream:micro-batches=cycle,deadline,"
                f"deadline:micro-batches=cycle --minutes 0.5 --rates 0.5 {_BUDGETS}",
                seeds=5,
                minutes=3,
            ),
        ),
        Picture(
            "pipeline-static",
            ("completion_s",),
            "Completion of 64 requests of 512 prompt and 512 answer tokens under vLLM's rule with"
            " static budgets, and under this package's rule, where transfers overlap, links have"
            " 100 Mbit/s and KV is limited",
            where={
                "workload": "64/512/512", "link": "overlapping", "kv": "limited", "mbit": 100.0
            },
        ),
        (
            PageTable(
                "pipeline-static-plans",
                (
                    "utility", "urgent_utility", "urgent_response_s", "waiting_s", "attainment",
                    "ttft_p95_s", "qoe", "stalled_s",
                ),
                "Robots, and a person every two seconds",
            ),
        ),
        comparisons=(
            Comparison(
                tuple(one.name for one in _BUDGET_COMMANDS),
                _CYCLE,
                "completion_s",
                "workload",
                {_STOCK: ""},
                "This package's rule over vLLM's with the best static budget",
                named=True,
                by="budget",
            ),
        ),
    ),
    Page(
        "pipeline_online",
        "Requests at Poisson times, at a model in stages",
        (
            Command(
                "pipeline-online",
                "pipeline-online",
                seeds=1,
                minutes=2,
            ),
        ),
        Picture(
            "pipeline-online",
            ("attainment", "ttft_p95_s"),
            "Share of requests within their service level, and the time to the first token, by the"
            " time at which requests came, where transfers overlap",
            where={"link": "overlapping"},
        ),
        (
            PageTable(
                "pipeline-online",
                (
                    "attainment", "ttft_attainment", "tpot_attainment", "ttft_p95_s",
                    "completion_s", "span_s", "recomputed_tokens",
                ),
            ),
        ),
    ),
    Page(
        "pipeline_online_budgets",
        "Requests at Poisson times, with static token budgets",
        (
            Command(
                "pipeline-online-budgets",
                f"pipeline-online --policies {_STOCK},{_CYCLE} {_BUDGETS}",
                seeds=1,
                minutes=3,
            ),
        ),
        Picture(
            "pipeline-online-budgets",
            ("attainment", "ttft_p95_s"),
            "Share of all requests within their service level, and the time to the first token with"
            " static budgets and with this package's rule, where transfers overlap",
            where={"link": "overlapping", "arrived": "all"},
        ),
        (
            PageTable(
                "pipeline-online-budgets",
                (
                    "attainment", "ttft_attainment", "tpot_attainment", "ttft_p95_s",
                    "completion_s", "span_s", "recomputed_tokens",
                ),
            ),
        ),
    ),
    Page(
        "pipeline_timeline",
        "What stages do",
        (
            Command(
                "pipeline-timeline",
                f"pipeline-timeline --policies {_STOCK},{_PAPER},{_CYCLE} --workloads 64/1024/1024",
                seeds=0,
                minutes=1,
            ),
            Command(
                "pipeline-offline-longest",
                f"pipeline-offline --workloads 64/2048/2048 --policies {_STOCK},{_PAPER},{_CYCLE}",
                seeds=0,
                minutes=3,
            ),
        ),
        Timelines(
            "pipeline-timeline",
            (_STOCK, _PAPER, _CYCLE),
            "Three seconds of four stages under three rules: computing, transfers, and idle time",
        ),
        (
            PageTable(
                "pipeline-timeline",
                _STAGES,
                "The seconds of the picture are from this run, 64/1024/1024",
                papers=False,
            ),
            PageTable(
                "pipeline-offline-longest",
                ("completion_s", "completion_vs_stock", "proc_s", "idle_s", *_STAGES[1:]),
                "The longest requests, 64/2048/2048",
            ),
        ),
    ),
    Page(
        "pipeline_plans",
        "Robots and people at a model in stages",
        (
            Command("pipeline-plans", "pipeline-plans --minutes 0.5", seeds=5, minutes=4),
            Command(
                "pipeline-plans-gate",
                "pipeline-plans --policies deadline,deadline:gate,deadline:micro-batches=cycle,"
                "deadline:gate:micro-batches=cycle --rates 0.5 --minutes 0.5",
                seeds=5,
                minutes=1,
            ),
        ),
        Picture(
            "pipeline-plans",
            ("utility", "urgent_response_s", "ttft_p95_s"),
            "Mean utility, first segments of urgent plans, and the time to the first token of"
            " answers, on four stages",
            where={
                "pipeline": "rtx4070x4-llama2-13b",
                "rate": 0.5,
                "policy": (
                    "stream", "stream:micro-batches=throttle", "stream:micro-batches=cycle",
                    "deadline", "deadline:micro-batches=throttle", "deadline:micro-batches=cycle",
                ),
            },
        ),
        (
            PageTable(
                "pipeline-plans",
                (
                    "utility", "urgent_utility", "urgent_response_s", "waiting_s", "attainment",
                    "ttft_p95_s", "qoe", "stalled_s",
                ),
                "A person every two seconds",
                where={"rate": 0.5},
            ),
            PageTable("pipeline-plans-gate", BOTH, "The gate, with people"),
        ),
        (Ranking("pipeline-plans", BOTH_FRONT),),
    ),
    Page(
        "pipeline_due",
        "Chunks of prompts by due times, at a model in stages",
        (
            Command(
                "pipeline-plans-due",
                f"pipeline-plans --policies {','.join(_DUE)} --pipelines two-boxes,"
                "boxes2-llama2-13b,rtx4070x4-llama2-13b --rates 0.5 --minutes 0.5",
                seeds=5,
                minutes=3,
            ),
        ),
        Picture(
            "pipeline-plans-due",
            ("utility", "urgent_utility", "ttft_p95_s"),
            "Mean utility, that of urgent plans, and the time to the first token of answers, on two"
            " boxes that are fast enough for urgent plans",
            where={"pipeline": "two-boxes"},
        ),
        (
            PageTable(
                "pipeline-plans-due",
                (
                    "utility", "urgent_utility", "urgent_response_s", "waiting_s", "attainment",
                    "ttft_p95_s", "qoe", "stalled_s",
                ),
            ),
        ),
    ),
)  # fmt: skip
