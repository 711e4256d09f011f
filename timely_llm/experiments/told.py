"""What a journal tells of a run: who was in which step, what was said, when requests ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from timely_llm.experiments.document import SpanKind

Events = Iterable[Mapping[str, Any]]
"""Of a journal: the kinds "step", "segment", "stream", "chunk" and "end" are read."""

REST_S = 0.05
"""An engine that makes no step for this long rests: what it does then is a new span."""


@dataclass(frozen=True)
class Piece:
    """A span on the clock of the run."""

    kind: SpanKind
    start_s: float
    end_s: float
    label: str = ""


@dataclass(frozen=True)
class Pass:
    """A step on the clock of the run, and who took part."""

    start_s: float
    end_s: float
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Told:
    """What the journal says: steps in order, when requests ended, texts by request and index.

    Attributes:
        words_per_s: of listeners, by request.
    """

    steps: list[Pass]
    generating: Mapping[str, list[Piece]]
    ends_s: Mapping[str, float]
    texts: Mapping[tuple[str, int], str]
    words_per_s: Mapping[str, float]

    @classmethod
    def of(cls, events: Events) -> Told:
        """Return what events say, in the order of the journal."""
        steps: list[Pass] = []
        ends_s: dict[str, float] = {}
        texts: dict[tuple[str, int], str] = {}
        words_per_s: dict[str, float] = {}
        for event in events:
            match event["event"]:
                case "step":
                    end_s = event["t"] + event["s"]
                    steps.append(Pass(event["t"], end_s, tuple(event["ids"])))
                case "segment":
                    texts[event["id"], event["index"]] = event["text"].strip()
                case "chunk":
                    texts[event["id"], event["index"]] = event["text"]
                case "stream":
                    words_per_s[event["id"]] = event["words_per_s"]
                case "end":
                    ends_s[event["id"]] = event["t"]
        return cls(steps, _generating(steps), ends_s, texts, words_per_s)


def _generating(steps: Iterable[Pass]) -> Mapping[str, list[Piece]]:
    """Return the unbroken runs of steps of each request."""
    runs: dict[str, list[list[Pass]]] = defaultdict(list)
    before: Pass | None = None
    for step in steps:
        goes_on = before is not None and step.start_s - before.end_s < REST_S
        for one in step.ids:
            if goes_on and runs[one] and runs[one][-1][-1] is before:
                runs[one][-1].append(step)
            else:
                runs[one].append([step])
        before = step
    return {
        one: [Piece("generating", part[0].start_s, part[-1].end_s, _steps(part)) for part in parts]
        for one, parts in runs.items()
    }


def _steps(part: list[Pass]) -> str:
    return f"{len(part)} steps" if len(part) > 1 else "1 step"
