"""What a training run is a function of, and the record of it beside the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tools.tiny_planner import corpus

RECORD = "training.json"


@dataclass(frozen=True)
class Settings:
    """What a training run is a function of, besides the corpus and the machine's speed."""

    minutes: float = 48.0
    steps: int = 0  # 0: as many as the minutes allow; else the minutes do not count
    hidden: int = 192
    inner: int = 512
    layers: int = 4
    vocabulary: int = 1536
    learning_rate: float = 6e-3
    tokens: int = 2048  # of a step
    prompt_weight: float = 0.1  # of a prompt token in the loss, an answer token has 1
    first_weight: float = 1.0  # of an answer's first token, which decides most
    probe_weight: float = 0.0  # of the probe's loss, see probe.py
    copy_steps: int = 250  # first steps, which only copy
    member_steps: int = 0  # next steps, which only learn whether names are in a list
    members: float = 0.0  # such steps later, as a share of the others
    searches: float = 0.0  # steps that only decide whether to search, as a share of the others
    with_system: float = 0.15  # share of steps
    arm_system: float = 0.15  # the same of the arm's steps
    sketch_system: float = 1.0  # the same of sketches; without it a sketch has a plan's prompt
    snapshot_minutes: float = 0.0  # 0: none
    go_on: str = ""  # a folder that this tool wrote: go on from it
    shrink: int = 0  # 1: go on from a smaller model made of it, of the sizes above
    tokenizer: str = ""  # a folder; a new model takes its tokenizer; empty: trained
    seed: int = 1
    version: int = corpus.VERSION  # of the stream of samples
    threads: int = 2


def streams_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the streams of training samples in a record, the earliest first.

    Records of before the stream's second version name one stream and no version.
    """
    if "streams" in record:
        return list(record["streams"])
    return [{"version": 1} | {name: record[name] for name in ("seed", "samples", "digest")}]


def earlier_settings(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of all runs up to that of a record, the earliest first."""
    before = record.get("before") or []
    runs = [*(before if isinstance(before, list) else [before]), record.get("settings")]
    return [run for run in runs if run]
