"""What papers report of the experiments here, as far as their text says it in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from timely_llm.experiments.policy_spec import FIXED
from timely_llm.experiments.results.document import Paper, Row, RowValue

# Bars and curves of figures are not read: only numbers that the text states.
_SETTING = (
    "The paper measures Llama 3 8B on an RTX 4090 in vLLM, with a network latency of 8 ms, once, on"
    " traces of its own; its code lets one request join at a step, into a batch of at most 8, under"
    " both policies."
)

FIGURE_5 = Paper(
    title="Ling et al. 2024, Figure 5 and §7.2",
    note="Low workload: vLLM reaches 59.5 % and TimelyLLM 81.5 % of the most that urgent tasks can"
    " earn, which is 2, and normal tasks all that they can. High workload: urgent tasks earn 191 %"
    " more than under vLLM. The released script takes that as (t - v) / |v| of means that may be"
    f" below 0, as the columns of gains do. {_SETTING}",
    rows=(
        {"workload": "wid1", "policy": "fcfs:harness", "load": 1,
         "urgent_utility_unclamped": 1.19},
        {"workload": "wid1", "policy": "timely", "load": 1, "urgent_utility_unclamped": 1.63,
         "normal_utility_unclamped": 1.0, "urgent_gain_vs_harness": 0.37},
        {"workload": "wid2", "policy": "timely", "load": 1, "urgent_gain_vs_harness": 1.91},
    ),
)  # fmt: skip

FIGURE_6 = Paper(
    title="Ling et al. 2024, Figure 6 and §7.2",
    note="Task 71 (normal, find a toy) and Task 72 (urgent, evading animal pursuit), with Task 73,"
    " urgent too. In words only: under vLLM Task 72 misses its expected response time of 200 ms;"
    f" under TimelyLLM it goes first, and Task 71 still makes its 1 s. {_SETTING}",
)

FIGURE_7 = Paper(
    title="Ling et al. 2024, Figure 7 and §7.3.1",
    note="The peaks of two curves over the largest batch, workload WID 2; beyond them utility falls"
    f" slightly. {_SETTING}",
    rows=(
        {"workload": "wid2", "policy": "timely", "load": 1, "batch": 6, "utility_unclamped": 1.21},
        {"workload": "wid2", "policy": "fcfs:harness", "load": 1, "batch": 12,
         "utility_unclamped": 0.74},
    ),
)  # fmt: skip

FIGURE_8 = Paper(
    title="Ling et al. 2024, Figure 8 and §7.3.2",
    note="Urgent tasks earn 183 % of what they earn in segments by FCFS and 142 % of EDF (read as"
    " ratios; turned round here); FCFS is best for normal tasks, EDF neglects them. The text names"
    " no workload; the presets of the released code have the trace of WID 2, a fixed batch of 6 and"
    f" no adaptive bound, and its script averages over requests. {_SETTING}",
    rows=tuple(
        {"workload": "wid2", "policy": f"{name}:{FIXED}", "load": 1, "urgent_vs_timely": share}
        for name, share in (("fcfs-segments", 0.546), ("edf", 0.704), ("timely", 1.0))
    ),
)  # fmt: skip


# Bars and curves of figures are not read: only numbers that the text states.
_SLICE_SETTING = (
    "The paper measures ChatGLM2-6B (INT4) on an RTX 4060 Ti in FastLLM; it does not say how long"
    " prompts and answers are, how many tasks it ran, or how often."
)
_STATIC = {
    "orca": (0.12859, 0.12859, 0.12859, 0.22),
    "fastserve": (0.12956, 0.12956, 0.12956, 0.22),
    "slice": (0.09403, 0.10665, 0.12111, 1.0),
}


_TENTHS = tuple(tenths / 10 for tenths in range(1, 10))
_LOW, _HIGH = (0.1, 0.5, 0.8, 1.0, 1.5), (2.0, 3.0, 5.0, 7.0)


def _rows(
    policy: str, rates: Sequence[float], ratios: Sequence[float], **said: RowValue
) -> Iterator[Row]:
    """Yield a row of a policy with the reported values for each rate and ratio."""
    for rate in rates:
        for ratio in ratios:
            yield {"policy": policy, "rate": rate, "rt_ratio": ratio, **said}


def _static() -> tuple[Row, ...]:
    rows: list[Row] = []
    for policy, (a, b, c, attainment) in _STATIC.items():
        for kind, tpot_s, slo_s in (("A", a, 0.1), ("B", b, 0.12), ("C", c, 0.25)):
            met = float(tpot_s <= slo_s)
            rows.append({"policy": policy, "type": kind, "tpot_ms": 1e3 * tpot_s,
                         "decoding_rate": round(1.0 / tpot_s, 2), "attainment": met})  # fmt: skip
        rows.append({"policy": policy, "type": "all", "attainment": attainment})
    return tuple(rows)


TABLE_II = Paper(
    title="Zhou et al. 2025, Table II and Figure 6",
    note="Nine tasks at once: 3 of type A (100 ms a token), 4 of type B (120 ms), 2 of type C"
    " (250 ms). Type C is faster than it must be, as here over whole answers: the tasks that"
    f" remain at the end share the engine with fewer others. {_SLICE_SETTING}",
    rows=_static(),
)

FIGURES_7_TO_9 = Paper(
    title="Zhou et al. 2025, Figures 7, 8 and 9, §VI-C",
    note="The text gives SLICE's shares and how much better they are (2.67 times in all, 3.23 for"
    " real-time tasks, 1.92 for others; deadlines of Orca and FastServe about 26 %); TTFT is 100 %"
    " under all; completion times only as ratios. At this rate its GPU is just saturated: with"
    f" others' answers of 40-160 tokens ours is not, with 80-320 it is. {_SLICE_SETTING}",
    rows=(
        {"policy": "slice", "rate": 1.0, "rt_ratio": 0.7, "attainment": 0.8333,
         "rt_attainment": 0.8529, "nrt_attainment": 0.7815, "ttft_attainment": 1.0,
         "tpot_attainment": 0.785, "completion_s_vs_slice": 1.0, "rt_completion_s_vs_slice": 1.0,
         "nrt_completion_s_vs_slice": 1.0},
        {"policy": "orca", "rate": 1.0, "rt_ratio": 0.7, "attainment": 0.3125,
         "rt_attainment": 0.26, "nrt_attainment": 0.41, "ttft_attainment": 1.0,
         "completion_s_vs_slice": 1.7, "rt_completion_s_vs_slice": 2.9,
         "nrt_completion_s_vs_slice": 1.4},
        {"policy": "fastserve", "rate": 1.0, "rt_ratio": 0.7, "attainment": 0.3125,
         "rt_attainment": 0.26, "nrt_attainment": 0.41, "ttft_attainment": 1.0,
         "completion_s_vs_slice": 1.5, "rt_completion_s_vs_slice": 3.4,
         "nrt_completion_s_vs_slice": 1.2},
    ),
)  # fmt: skip

FIGURE_10 = Paper(
    title="Zhou et al. 2025, Figure 10 and §VI-D",
    note="In words: SLICE meets more than 80 % of deadlines at every ratio, Orca and FastServe"
    " about 10 % below 70 %; with 10 % real-time tasks the others meet their SLO 10.5 times as"
    f" often under SLICE; overall the gain is up to 13 times. {_SLICE_SETTING}",
    rows=(
        *_rows("slice", (1.0,), _TENTHS, rt_attainment=0.8),
        *_rows("orca", (1.0,), _TENTHS[:6], rt_attainment=0.1),
        *_rows("fastserve", (1.0,), _TENTHS[:6], rt_attainment=0.1),
    ),
)

FIGURE_11 = Paper(
    title="Zhou et al. 2025, Figure 11 and §VI-E",
    note="In words: SLICE meets nearly 100 % of deadlines at every rate and about 80 % of all SLOs"
    " above 1.5 tasks/s; Orca and FastServe fall from 0.8 tasks/s on, and meet nearly no deadline"
    " above 1.5; at 3 tasks/s SLICE is 35 times as good. Eight rates from 0.1 to 7 tasks/s, of"
    f" which 0.8, 1.5, 2 and 3 are named. {_SLICE_SETTING}",
    rows=(
        *_rows("slice", _LOW, (0.7,), rt_attainment=1.0),
        *_rows("slice", _HIGH, (0.7,), rt_attainment=1.0, attainment=0.8),
        *_rows("orca", _HIGH, (0.7,), rt_attainment=0.0),
        *_rows("fastserve", _HIGH, (0.7,), rt_attainment=0.0),
    ),
)

# Bars of figures are not read: only numbers that the text states.
_HUANG_SETTING = (
    "The paper measures Qwen2.5 7B on two V100 in vLLM, on requests of ShareGPT and"
    " Python-Code-23k, each setting once with requests of its own."
)

HUANG_FIGURE_7 = Paper(
    title="Huang et al. 2025, Figure 7 and §5.2",
    note="The text has the largest gains over vLLM: 46.5 % of G and 33.4 points of attainment with"
    " 10 requests in batches of 1, 16.3 % less latency with 10 in batches of 2; 0.3 % of G is the"
    f" least. The caption of the figure says A100, §5.1 V100. {_HUANG_SETTING}",
    rows=(
        {
            "batch": 1,
            "requests": 10,
            "policy": "annealing",
            "g_gain": 0.465,
            "attainment_points": 0.334,
        },
        {"batch": 2, "requests": 10, "policy": "annealing", "latency_gain": -0.163},
    ),
)  # fmt: skip

HUANG_FIGURES_12_TO_18 = Paper(
    title="Huang et al. 2025, Figures 12 to 18 and §5.2",
    note="The text has the largest gains of all these figures over the engine's own order: up to 5"
    " times the attainment with 40 requests in batches of 1 (Figure 18), read as a gain of 4, and"
    " 31.6 % less latency with 8 in batches of 2 (Figure 16). Of the others it has no number."
    " The paper measures each setting once, on requests of ShareGPT and"
    " Python-Code-23k.",
    rows=(
        {
            "figure": 18,
            "batch": 1,
            "requests": 40,
            "policy": "annealing",
            "attainment_gain": 4.0,
        },
        {
            "figure": 16,
            "batch": 2,
            "requests": 8,
            "policy": "annealing",
            "latency_gain": -0.316,
            "latency_change": -0.316,
        },
    ),
)  # fmt: skip

HUANG_TABLE_1 = Paper(
    title="Huang et al. 2025, Table 1 and §5.2",
    note="Milliseconds of a search with batches of one, in Python on a Xeon 6132. The text says"
    f" that annealing loses at most 1.0 % of G against exhaustive search. {_HUANG_SETTING}",
    rows=tuple(
        {"batch": 1, "requests": count, "policy": f"annealing{search}", "milliseconds": ms}
        for search, times in (("", (0.23, 0.32, 0.43, 0.48)),
                              (":search=exhaustive", (1.2, 39.0, 88_200.0, 287_000.0)))
        for count, ms in zip((4, 6, 8, 10), times, strict=True)
    ),
)  # fmt: skip

HUANG_FIGURE_8 = Paper(
    title="Huang et al. 2025, Figure 8 and §5.2",
    note="With 10 requests in batches of one, the gain of G grows from 45.6 % to 49.8 % as T0 goes"
    " from 100 to 200, and to 47.2 % with more iterations; the text does not say how many. The"
    f" iterations are taken to be 100, the default. {_HUANG_SETTING}",
    rows=tuple(
        {"batch": 1, "requests": 10, "policy": f"annealing:reset=on:t0={t0}:iterations=100",
         "g_gain": gain}
        for t0, gain in ((100, 0.456), (200, 0.498))
    ),
)  # fmt: skip

HUANG_FIGURE_9 = Paper(
    title="Huang et al. 2025, Figure 9 and §5.3",
    note="With 40 requests in batches of 4, an error below 2.5 % gains 65 % of G over draws from"
    f" the Gaussian and 84 % over vLLM. {_HUANG_SETTING}",
    rows=(
        {"batch": 4, "requests": 40, "policy": "2.5%", "g_gain_vs_gaussian": 0.65, "g_gain": 0.84},
    ),
)

HUANG_FIGURE_10 = Paper(
    title="Huang et al. 2025, Figure 10 and §5.4",
    note="Changed coefficients lose at most 1.9 % of G, most by alpha; the text does not say by how"
    " much they were changed, nor in which direction, so that the row of alpha names no change."
    f" {_HUANG_SETTING}",
    rows=({"policy": "annealing", "parameter": "alpha", "g_vs_fitted": 0.981},),
)

HUANG_FIGURE_11 = Paper(
    title="Huang et al. 2025, Figure 11 and §5.5",
    note="Ten requests, and a copy of each for each instance, of two V100 each. The time of"
    " scheduling grows linearly, since the instances are searched one after another; the gain in G"
    " is sustained, of which the text has no number. The paper does not name the largest batch:"
    " the times are 1.9 and 4 times that of Table 1 with ten requests in batches of one. Whether"
    f" they contain the assignment is open. {_HUANG_SETTING}",
    rows=tuple(
        {"lengths": "learned", "servers": servers, "dispatcher": "largest-memory",
         "policy": "annealing", "search_ms": ms}
        for servers, ms in ((2, 0.93), (4, 1.91))
    ),
)  # fmt: skip

AHN_STOCK = "fcfs:prompts_evict=off"
"""The policy with vLLM's rule of eviction: the baseline of Ahn et al. 2025."""


def in_stages(rule: str) -> str:
    """Return the baseline of Ahn et al. 2025 with a rule of micro-batches."""
    name, option = AHN_STOCK.split(":")
    return f"{name}:micro-batches={rule}:{option}"


_AHN_ARMS = (AHN_STOCK, in_stages("budget-only"), in_stages("paper"))
_AHN_SECONDS = {
    "64/256/256": ((130.3, 63.3, 66.5), (123.8, 67.1, 56.2), (111.6, 62.4, 47.7)),
    "128/256/256": ((290.9, 112.6, 177.7), (226.4, 110.8, 115.0), (211.0, 122.4, 88.0)),
    "256/256/256": ((616.2, 206.3, 409.3), (441.0, 197.2, 243.2), (381.9, 197.9, 182.6)),
    "32/512/512": ((152.0, 88.2, 63.2), (147.5, 91.8, 55.2), (139.0, 87.4, 51.1)),
    "64/512/512": ((319.3, 158.8, 160.0), (268.7, 158.4, 109.7), (256.5, 170.7, 85.2)),
    "128/512/512": ((673.5, 295.0, 377.9), (499.9, 266.0, 233.4), (471.7, 282.8, 188.3)),
    "32/1024/1024": ((420.6, 255.7, 164.4), (366.5, 255.0, 110.9), (349.6, 241.6, 107.4)),
    "64/1024/1024": ((891.8, 475.6, 415.7), (708.8, 447.5, 260.7), (660.5, 424.9, 234.2)),
    "32/2048/2048": ((1262.9, 833.1, 429.3), (1142.3, 782.9, 358.8), (1092.5, 738.6, 353.4)),
    "64/2048/2048": ((2468.7, 1684.4, 783.8), (2222.2, 1567.0, 654.5), (2113.0, 1451.1, 660.4)),
}

AHN_WORKLOADS = tuple(_AHN_SECONDS)
"""Requests that come at once, tokens of each prompt, tokens of each answer."""

AHN_TABLE_1 = Paper(
    title="Ahn et al. 2025, Table 1",
    note="Llama-2-13B in four stages on RTX 4070 with 100 Mbit/s between them, vLLM 0.9.0.1. The"
    " text names neither its base budget, nor the most micro-batches, nor the KV of a stage, nor"
    " whether a send keeps its stage from computing. The sums of its text swap two rows of idle"
    " time.",
    rows=tuple(
        {
            "pipeline": "rtx4070x4-llama2-13b", "link": "blocking", "mbit": 100.0,
            "workload": workload, "budget": 2048,
            "policy": policy, "completion_s": completion_s, "proc_s": proc_s, "idle_s": idle_s,
            "completion_vs_stock": completion_s / arms[0][0],
        }
        for workload, arms in _AHN_SECONDS.items()
        for policy, (completion_s, proc_s, idle_s) in zip(_AHN_ARMS, arms, strict=True)
    ),
)  # fmt: skip

AHN_FIGURE_3 = Paper(
    title="Ahn et al. 2025, Figure 3 and §5.2.2",
    note="In words only: both of its rules keep more requests within their service level than the"
    " baseline, most during bursts. The text names neither the thresholds nor the shares.",
)
