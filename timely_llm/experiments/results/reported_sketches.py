"""What Zhan et al. 2025 (PICE) reports, as far as its text says it in numbers."""

from __future__ import annotations

from timely_llm.experiments.results.document import Paper, Row

_TABLE_3 = {
    "qwen2.5-72b": ((14.891, 138.62), None, (14.86, 145.04), (21.24, 97.34)),
    "llama3-70b": ((16.33, 121.54), None, (13.79, 143.94), (25.98, 75.15)),
    "qwen2.5-32b": ((32.13, 72.32), None, (30.04, 88.57), (34.81, 61.22)),
    "llama3-8b": ((75.51, 28.57), (6.03, 804.21), (69.55, 74.75), (70.48, 30.21)),
    "qwen2.5-7b": ((88.33, 30.88), (6.68, 801.23), (69.55, 68.66), (84.98, 31.78)),
    "qwen2.5-1.5b": ((148.12, 23.71), (21.20, 210.38), (133.31, 41.28), (140.86, 26.19)),
}
_METHODS = ("cloud-only", "edge-only", "routing", "pice")


def _rows() -> tuple[Row, ...]:
    made: list[Row] = []
    for model, cells in _TABLE_3.items():
        base = cells[0]
        assert base is not None
        for policy, cell in zip(_METHODS, cells, strict=True):
            if cell is not None:
                made.append(
                    {
                        "model": model, "policy": policy,
                        "throughput": cell[0], "latency_s": cell[1],
                        "throughput_vs_cloud": cell[0] / base[0],
                        "latency_vs_cloud": cell[1] / base[1] - 1.0,
                    }
                )  # fmt: skip
    return tuple(made)


ZHAN_TABLE_3 = Paper(
    title="Zhan et al. 2025, Table III",
    note="Four A100 in vLLM and four Jetson AGX Orin in Transformers, each method once. With the"
    " latency of an idle cloud (26.6 s for 500 tokens) Eq. 2 admits no sketch for a model of 7"
    " billion parameters on an edge (10.6 + 35.9 s); with that of a full batch (73.5 s) it does."
    " The text states 1.59 times the throughput and 38 % less latency for Llama 3 70B; 2.32 times"
    " that of routing, which its table has as 1.88; and 43 % less latency at the most, which is no"
    " ratio of two of its cells to `cloud-only` (38 %) or to routing (48 %).",
    rows=_rows(),
)

ZHAN_FIGURE_6 = Paper(
    title="Zhan et al. 2025, Figure 6 and §V-C",
    note="Llama 3 70B in the cloud. In words: the dynamic scheduler has 50 % more throughput than"
    " the static one, 6.0 % more quality by a judge model, and better answers in 69 % of the"
    " categories. Bars are not read.",
)

ZHAN_FIGURE_7 = Paper(
    title="Zhan et al. 2025, Figure 7 and §V-C",
    note="In words: parallel expansion takes at least 62 s off the latency; parallelism grows with"
    " the sketch up to about 500 tokens, and falls beyond for want of memory. The text names"
    " neither the model, nor the load, nor the memory for KV.",
)

ZHAN_FIGURES_8_9 = Paper(
    title="Zhan et al. 2025, Figures 8 and 9 and §V-C",
    note="By a judge model: ensembles raise the quality by 2.8 % over all, most in roleplay (13.95"
    " %) and knowledge (11.69 %), but not in coding and counterfactual questions. Weights and"
    " normalization of Eq. 3, and the number of candidates of each model, are not stated.",
)

ZHAN_FIGURE_12 = Paper(
    title="Zhan et al. 2025, Figure 12 and §V-D",
    note="In words: below 20 questions a minute PICE is comparable to the cloud alone; beyond, its"
    " throughput goes on growing, while that of the cloud alone stays and its latency increases"
    " sharply.",
)

ZHAN_FIGURE_13 = Paper(
    title="Zhan et al. 2025, Figure 13 and §V-D",
    note="In words: the throughput is best with a queue of four, as many as edges; beyond eight the"
    " latency rises substantially.",
)

ZHAN_FIGURE_14 = Paper(
    title="Zhan et al. 2025, Figure 14 and §V-D",
    note="In words: the bandwidth has minimal impact; transfers take a few tens of milliseconds.",
)
