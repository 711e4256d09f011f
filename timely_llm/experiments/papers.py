"""What paper 001 (TimelyLLM) reports, as far as its text says it in numbers."""

from __future__ import annotations

from timely_llm.experiments.document import Paper

# Bars and curves of figures are not read: only numbers that the text states.
_SETTING = (
    "The paper measures Llama 3 8B on an RTX 4090 in vLLM, with a network latency of 8 ms, once, on"
    " traces of its own; its code lets one request join at a step, into a batch of at most 8, under"
    " both policies."
)

FIGURE_5 = Paper(
    title="Paper 001, Figure 5 and §7.2",
    note="Low workload: vLLM reaches 59.5 % and TimelyLLM 81.5 % of the most that urgent tasks can"
    " earn, which is 2, and normal tasks all that they can. High workload: urgent tasks earn 191 %"
    f" more than under vLLM. {_SETTING}",
    rows=(
        {"workload": "wid1", "policy": "fcfs", "load": 1, "urgent_utility": 1.19,
         "urgent_utility_vs_fcfs": 1.0},
        {"workload": "wid1", "policy": "timely", "load": 1, "urgent_utility": 1.63,
         "normal_utility": 1.0, "urgent_utility_vs_fcfs": 1.37},
        {"workload": "wid2", "policy": "fcfs", "load": 1, "urgent_utility_vs_fcfs": 1.0},
        {"workload": "wid2", "policy": "timely", "load": 1, "urgent_utility_vs_fcfs": 2.91},
    ),
)  # fmt: skip

FIGURE_6 = Paper(
    title="Paper 001, Figure 6 and §7.2",
    note="Task 71 (normal, find a toy) and Task 72 (urgent, evading animal pursuit), with Task 73,"
    " urgent too. In words only: under vLLM Task 72 misses its expected response time of 200 ms;"
    f" under TimelyLLM it goes first, and Task 71 still makes its 1 s. {_SETTING}",
)

FIGURE_7 = Paper(
    title="Paper 001, Figure 7 and §7.3.1",
    note="The peaks of two curves over the largest batch, workload WID 2; beyond them utility falls"
    f" slightly. {_SETTING}",
    rows=(
        {"workload": "wid2", "policy": "timely", "load": 1, "batch": 6, "utility": 1.21},
        {"workload": "wid2", "policy": "fcfs", "load": 1, "batch": 12, "utility": 0.74},
    ),
)  # fmt: skip

FIGURE_8 = Paper(
    title="Paper 001, Figure 8 and §7.3.2",
    note="Urgent tasks earn 183 % of what they earn in segments by FCFS and 142 % of EDF (read as"
    " ratios; turned round here); FCFS is best for normal tasks, EDF neglects them. The workload is"
    f" not said. {_SETTING}",
    rows=(
        {"workload": "wid2", "policy": "fcfs-segments", "load": 1,
         "urgent_utility_vs_timely": 0.546},
        {"workload": "wid2", "policy": "edf", "load": 1, "urgent_utility_vs_timely": 0.704},
        {"workload": "wid2", "policy": "timely", "load": 1, "urgent_utility_vs_timely": 1.0},
    ),
)  # fmt: skip
