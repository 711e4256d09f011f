"""Pages about sketches of a cloud that edges expand."""

from __future__ import annotations

from tools.results.page import Command, Page, PageTable, Picture

_COLUMNS = (
    "throughput", "throughput_vs_cloud", "latency_s", "latency_vs_cloud", "first_words_s",
    "rouge_1", "cloud_tokens", "sketched",
)  # fmt: skip
_SHORT = ("throughput", "latency_s", "first_words_s", "rouge_1", "cloud_tokens", "sketched")
_LARGE = ("qwen2.5-72b", "llama3-70b", "qwen2.5-32b")
_OPENINGS = (
    "sketches", "sketches:opening=off", "sketches:opening_tokens=10", "sketches:opening_tokens=20",
    "sketches:horizon_s=600", "sketches:horizon_s=600:opening=off",
)  # fmt: skip
_MORE = (
    "pice:capable_share=0.1", "pice:capable_share=0.4",
    "pice:list_ratio=1.2", "pice:list_ratio=4", "pice:list_ratio=inf",
    "pice:batch=8:list_ratio=1.2", "pice:batch=8:list_ratio=4", "pice:batch=8:list_ratio=inf",
)  # fmt: skip
_DRAWN = ("cloud-only", "speculative", "pice", "pice:merge=off", "sketches")

PAGES = (
    Page(
        "pice_throughput",
        "Sketches from a cloud, expanded by four edges",
        (Command("pice-throughput", "pice-throughput", seeds=5, minutes=6),),
        Picture(
            "pice-throughput",
            ("throughput_vs_cloud", "latency_s"),
            "Throughput over that of the cloud alone, and latency, of three large cloud models",
            where={"model": _LARGE, "policy": _DRAWN},
        ),
        (
            PageTable("pice-throughput", _COLUMNS, "Large models", where={"model": _LARGE}),
            PageTable(
                "pice-throughput", _COLUMNS, "Small models",
                where={
                    "model": ("llama3-8b", "qwen2.5-7b", "qwen2.5-1.5b"),
                    "policy": (
                        "cloud-only", "edge-only", "edge-only:rows=8", "routing", "skeleton",
                        "pice-static", "pice", "sketches",
                    ),
                },
            ),
        ),
    ),
    Page(
        "pice_schedule",
        "A scheduler of sketches that follows the load",
        (
            Command("pice-schedule", "pice-schedule", seeds=3, minutes=0.5),
            Command(
                "pice-schedule-opening",
                "pice-schedule --policies pice-static,sketches:opening=off", seeds=3, minutes=0.2,
            ),
        ),
        Picture(
            "pice-schedule",
            ("throughput", "latency_s", "rouge_1"),
            "Throughput, latency and Rouge-1 under a static scheduler, a dynamic one, and by worth",
            where={"category": "all"},
        ),
        (
            PageTable(
                "pice-schedule", (*_SHORT, "net_win_rate"), "All questions",
                where={"category": "all"},
            ),
            PageTable(
                "pice-schedule", ("latency_s", "rouge_1", "sketched", "net_win_rate"),
                "By category",
                where={
                    "category": ("coding", "humanities", "math", "reasoning", "writing"),
                    "policy": ("pice-static", "pice", "sketches"),
                },
            ),
            PageTable(
                "pice-schedule-opening", (*_SHORT, "net_win_rate"),
                "`sketches`, without the edge's opening",
                where={"category": "all", "policy": "sketches:opening=off"},
            ),
        ),
    ),
    Page(
        "pice_parallel",
        "Rows that expand a sketch",
        (Command("pice-parallel", "pice-parallel", seeds=3, minutes=0.5),),
        Picture(
            "pice-parallel",
            ("latency_s", "stalled_s", "rows"),
            "Latency, stalls and rows of eight sketches at once, over their length, on an Orin with"
            " Qwen2.5 7B",
            where={"model": "qwen2.5-7b", "people": 8},
        ),
        (
            PageTable(
                "pice-parallel", ("latency_s", "first_words_s", "stalled_s", "rows", "kv_tokens"),
                where={"sketch_tokens": (120, 240, 960)},
            ),
        ),
    ),
    Page(
        "pice_ensemble",
        "Which of several expansions is shown",
        (Command("pice-ensemble", "pice-ensemble", seeds=3, minutes=0.5),),
        Picture(
            "pice-ensemble",
            ("rouge_1",),
            "Rouge-1 of single models, of the most confident expansion, and of the best one",
            where={"category": "all"},
        ),
        (
            PageTable(
                "pice-ensemble", ("rouge_1", "confidence"), "All questions",
                where={"category": "all"},
            ),
            PageTable(
                "pice-ensemble", ("rouge_1", "confidence"), "By category",
                where={
                    "policy": ("qwen2.5-1.5b", "llama3-8b", "qwen2.5-7b", "confidence", "oracle"),
                },
            ),
        ),
    ),
    Page(
        "pice_load",
        "Questions to a cloud and edges come faster",
        (
            Command("pice-load", "pice-load", seeds=3, minutes=2),
            Command(
                "pice-load-opening", "pice-load --policies sketches:opening=off", seeds=3,
                minutes=0.4,
            ),
        ),
        Picture(
            "pice-load",
            ("throughput", "latency_s", "first_words_s"),
            "Throughput, latency and the time to the first words over questions a minute",
            where={"policy": ("cloud-only", "routing", "pice", "pice:merge=off", "sketches")},
        ),
        (
            PageTable("pice-load", (*_SHORT, "stalled_s"), "By method"),
            PageTable(
                "pice-load-opening", (*_SHORT, "stalled_s"),
                "`sketches`, without the edge's opening",
            ),
        ),
    ),
    Page(
        "pice_queue",
        "Sketches that wait for an edge",
        (Command("pice-queue", "pice-queue", seeds=3, minutes=1),),
        Picture(
            "pice-queue",
            ("throughput", "latency_s"),
            "Throughput and latency over the most sketches that may wait",
        ),
        (PageTable("pice-queue", _SHORT),),
    ),
    Page(
        "pice_bandwidth",
        "A slow link to the cloud",
        (Command("pice-bandwidth", "pice-bandwidth", seeds=3, minutes=1),),
        Picture(
            "pice-bandwidth",
            ("throughput", "latency_s"),
            "Throughput and latency over the bandwidth of the link to the cloud",
            lines=True,
        ),
        (PageTable("pice-bandwidth", _SHORT),),
    ),
    Page(
        "pice_plans",
        "Robots' plans with the steps of a cloud",
        (Command("pice-plans", "pice-plans", seeds=3, minutes=0.5),),
        Picture(
            "pice-plans",
            ("exact", "response_s", "cloud_tokens"),
            "Share of exact plans, time to the first action and tokens of the cloud, over tasks a"
            " minute",
        ),
        (
            PageTable(
                "pice-plans",
                ("exact", "valid", "repaired", "response_s", "waiting_s", "done_s", "cloud_tokens",
                 "edge_tokens", "helped"),
            ),
        ),
    ),
    Page(
        "pice_options",
        "What depends on numbers that the paper on sketches leaves open",
        (
            Command("pice-options", "pice-options", seeds=3, minutes=1),
            Command(
                "pice-options-more", f"pice-options --policies {','.join((*_OPENINGS, *_MORE))}",
                seeds=3, minutes=0.5,
            ),
        ),
        Picture(
            "pice-options",
            ("latency_s",),
            "Latency of PICE and of this package's sketches, each with one option changed",
        ),
        (
            PageTable(
                "pice-options", ("throughput", "steady_throughput", *_SHORT[1:], "stalled_s"),
                "Levels, batches, rows, and this package's rules",
            ),
            PageTable(
                "pice-options-more", (*_SHORT, "stalled_s", "edge_tokens"), "Openings",
                where={"policy": _OPENINGS},
            ),
            PageTable(
                "pice-options-more", ("throughput", "steady_throughput", *_SHORT[1:]),
                "Shares of capable models, and boundaries of Algorithm 1",
                where={"policy": _MORE},
            ),
        ),
    ),
)  # fmt: skip
