"""The numbers of a demo as robots and people measured them, its outages, its runs for a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from timely_llm.core.events.history import History
from timely_llm.core.events.reader import LogError
from timely_llm.core.events.request_history import PlanHistory, RequestHistory, StreamHistory
from timely_llm.core.events.schema import AnsweredEvent, DoneEvent
from timely_llm.core.request import ErrorCode
from timely_llm.core.text import count_of
from timely_llm.demo.files import Files
from timely_llm.demo.run import LogsReader
from timely_llm.demo.timeline import timeline
from timely_llm.experiments.results.document import DocumentError, Row, RunDocument
from timely_llm.report.load import LoadedRun

DIGITS = 4


@dataclass(frozen=True)
class TalkSummary:
    """Questions of one service level; None where there is nothing to measure.

    Attributes:
        slo_attainment: share of the questions with a complete answer that kept its service level;
            those that were canceled when the people went are left out.
        ttft_p50_s, ttft_p95_s: from asking to the first token, over answers.
        tokens_per_s: mean over answers with two tokens or more.
        largest_gap_s: the longest time between two tokens of any answer.
        stalls, stalled_s: how often and for how long people had no word to take in.
    """

    asked: int
    answered: int
    slo_attainment: float | None
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tokens_per_s: float | None
    largest_gap_s: float | None
    stalls: int
    stalled_s: float

    @classmethod
    def of(cls, talks: Sequence[StreamHistory]) -> TalkSummary:
        """Return the summary of some questions; one that never ended was never answered."""
        answers = [talk.outcome for talk in talks if talk.answered and talk.outcome]
        judged = [t for t in talks if not (t.outcome and t.outcome.outcome == "canceled")]
        ttft_s = [answer.ttft_s for answer in answers]
        rates = [1.0 / answer.tpot_s for answer in answers if answer.tpot_s]
        kept = sum(answer.slo_met for answer in answers)
        return cls(
            asked=len(talks),
            answered=len(answers),
            slo_attainment=round(kept / len(judged), DIGITS) if judged else None,
            ttft_p50_s=_rounded(np.percentile(ttft_s, 50)) if ttft_s else None,
            ttft_p95_s=_rounded(np.percentile(ttft_s, 95)) if ttft_s else None,
            tokens_per_s=_rounded(np.mean(rates)) if rates else None,
            largest_gap_s=_rounded(max(a.largest_gap_s for a in answers)) if answers else None,
            stalls=sum(answer.stalls for answer in answers),
            stalled_s=_rounded(sum(answer.stalled_s for answer in answers)),
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes; times in seconds."""
        return asdict(self)


def by_class(talks: Sequence[StreamHistory]) -> dict[str, TalkSummary]:
    """Return the summary of each service level that was asked for, in order of their names."""
    names = sorted({talk.slo_class for talk in talks})
    return {name: TalkSummary.of([t for t in talks if t.slo_class == name]) for name in names}


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)


@dataclass(frozen=True)
class ClassSummary:
    """One class of robots' requests; seconds, None where there is nothing to measure."""

    requests: int
    served: int
    finished: int
    p50_s: float | None
    p95_s: float | None
    waiting_s: float | None
    utility: float | None

    @classmethod
    def of(cls, requests: Sequence[PlanHistory]) -> ClassSummary:
        """Return the summary of some requests; one that never ended was never answered."""
        served = [r.outcome for r in requests if r.outcome and r.outcome.served]
        response_s = [outcome.response_s for outcome in served]
        utility = [outcome.utility for outcome in served] + [0.0] * (len(requests) - len(served))
        return cls(
            requests=len(requests),
            served=len(served),
            finished=sum(outcome.outcome == "finished" for outcome in served),
            p50_s=_rounded(np.percentile(response_s, 50)) if served else None,
            p95_s=_rounded(np.percentile(response_s, 95)) if served else None,
            waiting_s=_rounded(np.mean([o.waiting_s for o in served])) if served else None,
            utility=_rounded(np.mean(utility)) if utility else None,
        )


@dataclass(frozen=True)
class Summary:
    """All of a run."""

    urgent: ClassSummary
    normal: ClassSummary
    segments: int
    recomputed_tokens: int
    error_messages: tuple[str, ...]
    conversations: dict[str, TalkSummary]

    @classmethod
    def of(cls, history: History) -> Summary:
        """Return the summary of a run."""
        asked = history.asked
        questions = history.questions
        outcomes: list[tuple[str, DoneEvent | AnsweredEvent]] = [
            *((request.id, request.outcome) for request in asked if request.outcome),
            *((talk.id, talk.outcome) for talk in questions if talk.outcome),
        ]
        return cls(
            urgent=ClassSummary.of([r for r in asked if r.urgent]),
            normal=ClassSummary.of([r for r in asked if not r.urgent]),
            segments=len(history.published),
            recomputed_tokens=sum(outcome.recomputed_tokens for _, outcome in outcomes),
            error_messages=tuple(_message(i, o) for i, o in outcomes if o.is_error),
            conversations=by_class(questions),
        )

    @property
    def requests(self) -> int:
        """Requests asked."""
        return self.urgent.requests + self.normal.requests

    @property
    def served(self) -> int:
        """Requests with an executed first segment."""
        return self.urgent.served + self.normal.served

    @property
    def finished(self) -> int:
        """Requests with a plan that was executed to its end."""
        return self.urgent.finished + self.normal.finished

    @property
    def share_first(self) -> float | None:
        """Served requests over requests; None without requests."""
        return self._share(self.served)

    @property
    def share_finished(self) -> float | None:
        """Finished requests over requests; None without requests."""
        return self._share(self.finished)

    def _share(self, count: int) -> float | None:
        return round(count / self.requests, DIGITS) if self.requests else None

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes; times in seconds."""
        classes = {"urgent": self.urgent, "normal": self.normal}
        return {
            "requests": self.requests,
            "served": self.served,
            "finished": self.finished,
            "share_first": self.share_first,
            "share_finished": self.share_finished,
            "share_served": self.share_first,  # by its former name
            "segments": self.segments,
            "recomputed_tokens": self.recomputed_tokens,
            "response_s": {k: {"p50": c.p50_s, "p95": c.p95_s} for k, c in classes.items()},
            "waiting_s": {k: c.waiting_s for k, c in classes.items()},
            "utility": {k: c.utility for k, c in classes.items()},
            "conversations": {k: c.as_json() for k, c in self.conversations.items()},
            "errors": len(self.error_messages),
            "error_messages": list(self.error_messages),
        }


def _message(request_id: str, outcome: DoneEvent | AnsweredEvent) -> str:
    try:
        code = ErrorCode(outcome.error_code).name
    except ValueError:
        code = f"error {outcome.error_code}"
    return f"{request_id}: {outcome.error_msg or outcome.outcome} ({code})"


MEASURES = {
    "utility": "mean worth of the first responses, 0 if late or never",
    "urgent_utility": "the same, of urgent requests",
    "normal_utility": "the same, of normal requests",
    "share_first": "share of the plans with an executed first segment",
    "share_finished": "share of the plans that were executed to their end",
    "urgent_response_s": "from asking to the execution of the first segment, seconds; median of"
    " urgent requests",
    "normal_response_s": "the same, median of normal requests",
    "waiting_s": "mean time in which a robot with a task had nothing to execute, seconds",
    "attainment": "share of the questions with a complete answer that kept its service level",
    "ttft_p95_s": "95 % of the answers had their first token within this time, seconds",
    "max_gap_s": "longest time between two tokens of an answer, seconds",
    "stalled_s": "time in which listeners had no words left, all of them together, seconds",
}
COUNTS = {
    "requests": "plans that robots asked for",
    "conversations": "questions that people asked",
    "segments": "segments that the server published",
    "recomputed_tokens": "tokens with a KV that was computed a second time",
}


def is_demo(folder: Path) -> bool:
    """Return whether a folder has the event log of a demo's server."""
    return folder.is_dir() and bool(Files.found(folder))


def load_demo(folder: Path) -> list[LoadedRun]:
    """Return the runs of a demo, one for each policy.

    Raises:
        DocumentError: one sentence; its event logs cannot be read, or nothing was asked in it.
    """
    return [_loaded(files) for files in Files.found(folder)]


def _loaded(files: Files) -> LoadedRun:
    folder, policy, logs = files.folder, files.policy, LogsReader(files)
    history = logs.history
    try:
        logs.read()
        written_s = max(path.stat().st_mtime for path in files.event_logs.values())
    except OSError as error:
        raise DocumentError(f"cannot read {folder}: {error.strerror}") from error
    except LogError as error:
        raise DocumentError(f"{folder} has an event log that no demo wrote: {error}") from error
    if not (history.asked or history.questions):
        raise DocumentError(f"{folder} has no requests of {policy}: there is nothing to report")
    began_s = written_s - (history.end_s - history.origin_s)
    return LoadedRun(
        _document(folder, policy, history),
        datetime.fromtimestamp(began_s, UTC),
        (replace(timeline(history, policy), decisions=history.decisions.by_request),),
        True,
        Summary.of(history).finished,
    )


def _document(folder: Path, policy: str, history: History) -> RunDocument:
    row = {"policy": policy, **_row(Summary.of(history), history)}
    definitions = {**COUNTS, **MEASURES, "share_served": "share_first, by its former name"}
    return RunDocument(
        experiment="demo",
        question="What did robots and people get, and when?",
        command=f"timely-llm report {folder.name}",
        keys=("policy",),
        measures=tuple(name for name in MEASURES if row.get(name) is not None),
        definitions={name: said for name, said in definitions.items() if name in row},
        rows=(row,),
        notes=tuple(Summary.of(history).error_messages),
    )


def _row(summary: Summary, history: History) -> Row:
    """Return what the demo's table shows, in columns that are named as those of experiments."""
    classes = (summary.urgent, summary.normal)
    talks = summary.conversations.values()

    def mean(values: list[tuple[float | None, int]]) -> float | None:
        known = [(value, count) for value, count in values if value is not None and count]
        count = sum(number for _, number in known)
        return sum(value * number for value, number in known) / count if count else None

    return {
        "requests": summary.requests,
        "conversations": len(history.questions),
        "segments": summary.segments,
        "recomputed_tokens": summary.recomputed_tokens,
        "utility": mean([(one.utility, one.requests) for one in classes]),
        "urgent_utility": summary.urgent.utility,
        "normal_utility": summary.normal.utility,
        "share_served": summary.share_first,
        "share_first": summary.share_first,
        "share_finished": summary.share_finished,
        "urgent_response_s": summary.urgent.p50_s,
        "normal_response_s": summary.normal.p50_s,
        "waiting_s": mean([(one.waiting_s, one.served) for one in classes]),
        "attainment": mean([(one.slo_attainment, one.asked) for one in talks]),
        "ttft_p95_s": max((one.ttft_p95_s or 0.0 for one in talks), default=None),
        "max_gap_s": max((one.largest_gap_s or 0.0 for one in talks), default=None),
        "stalled_s": sum(one.stalled_s for one in talks) if talks else None,
    }


@dataclass(frozen=True)
class Outage:
    """A server that was gone for a while.

    Attributes:
        server: its name.
        gone_s, back_s: when it ended and was ready again, seconds since the first request; not a
            number: it did not come back.
        requests: that it had when it ended.
        elsewhere: those of them that went on at another server.
        at_itself: those that went on at the server itself, in its next life.
        without_end: those that ended with an error, or not at all.
    """

    server: str
    gone_s: float
    back_s: float
    requests: int
    elsewhere: int
    at_itself: int
    without_end: int

    def as_json(self) -> dict[str, Any]:
        """Return what `--json` writes; a time that never came is null."""
        times = {"gone_s": self.gone_s, "back_s": self.back_s}
        known = {name: round(at, 3) if math.isfinite(at) else None for name, at in times.items()}
        return {**asdict(self), **known}

    def __str__(self) -> str:
        """Return what happened, in sentences."""
        back = "did not come back"
        if math.isfinite(self.back_s):
            back = f"served again at {self.back_s:.1f} s"
        said = f"{self.server} was killed at {self.gone_s:.1f} s and {back}."
        if not self.requests:
            return f"{said} It had no requests then."
        complete = self.requests - self.elsewhere - self.at_itself - self.without_end
        parts = [
            (self.elsewhere, "went on at other servers"),
            (self.at_itself, f"went on at {self.server} itself"),
            (complete, "needed no server any more"),
            (self.without_end, "ended with an error or not at all"),
        ]
        words = ", ".join(f"{count} {what}" for count, what in parts if count)
        requests = count_of(self.requests, "request")
        kept = "" if self.without_end else ": nothing was lost"
        return f"{said} Of the {requests} that it had, {words}{kept}."


def outages(history: History) -> list[Outage]:
    """Return the outages of all servers, in order of time."""
    works: list[PlanHistory | StreamHistory] = [*history.asked, *history.questions]
    found = [
        _outage(history, name, gone_s, back_s, [w for w in works if _had(w, name, gone_s)])
        for name, server in history.servers.items()
        for gone_s, back_s in server.outages
    ]
    return sorted(found, key=lambda outage: outage.gone_s)


def _had(work: PlanHistory | StreamHistory, server: str, at_s: float) -> bool:
    """Return whether a server had a request at a time: it had taken it, and not ended it."""
    if work.server_at(at_s) != server:
        return False
    ended_s = min(_or_never(work.end_s), work.outcome.t if work.outcome else math.inf)
    return ended_s > at_s


def _or_never(at_s: float) -> float:
    return math.inf if math.isnan(at_s) else at_s


def _outage(
    history: History, name: str, gone_s: float, back_s: float,
    works: list[PlanHistory | StreamHistory],
) -> Outage:  # fmt: skip
    lost = [work for work in works if work.outcome is None or work.outcome.is_error]
    kept = [work for work in works if work not in lost]
    after = [_next_server(work, gone_s) for work in kept]
    back_s = back_s if math.isfinite(back_s) else math.nan
    origin_s = history.origin_s
    return Outage(
        name, gone_s - origin_s, back_s - origin_s, len(works),
        sum(server not in ("", name) for server in after), after.count(name), len(lost),
    )  # fmt: skip


def _next_server(work: RequestHistory, at_s: float) -> str:
    """Return the server that took a request next after a time; empty: none did."""
    return next((name for taken_s, name in work.taken if taken_s > at_s), "")
