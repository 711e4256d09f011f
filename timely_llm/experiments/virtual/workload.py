"""From a trace's jobs to what a simulated model says and what simulated robots do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from timely_llm.engines.contract import Message
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.experiments.virtual.durations import (
    MILLISECONDS,
    MODEL,
    NOISY,
    OF_ARGUMENT,
    DurationModel,
    Predicted,
)
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill import Skill
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Job, Trace, TraceError

INSTANT_S = 0.001
"""What the last segment of a plan takes, and one without a skill."""

SHARED_TOKENS = 2774
OWN_TOKENS = 110
"""A prompt has 2,884 tokens, most of them the skill set's (Ling et al. 2024, Table 1)."""

REPLICA_GAP_S = 0.0002
LOWEST_ERROR, HIGHEST_ERROR = 0.3, 2.5

LONG = 64
"""Texts of fewer tokens are not worth remembering."""

_RUN = "run"
_RETURN = "->True;"
_FILLER = "."  # one token, wherever it stands
_END = "\n<assistant>\n"  # of every prompt, after the task


@dataclass(frozen=True)
class SegmentSpec:
    """A segment of a plan: its tokens, and the seconds that it takes and is predicted to take.

    Attributes:
        call: what it calls, if the prediction is a model's; None: `run`.
    """

    tokens: int
    true_s: float
    predicted_s: float
    call: Predicted | None = None


@dataclass(frozen=True)
class JobInstance:
    """One request of a job; a load above 1 makes several copies of a job.

    Attributes:
        id: unique in the run.
        job: of the trace.
        agent: robot that asks.
        arrival_s: time of the request, seconds on the trace's clock.
        measured: whether it counts in the metrics.
        parts: of its plan, in order; empty if not known.
        canceled_in: the part in which its robot cancels it, half way; None: it does not.
    """

    id: str
    job: Job
    agent: str
    arrival_s: float
    measured: bool
    parts: tuple[SegmentSpec, ...] = ()
    canceled_in: int | None = None

    @cached_property
    def pieces(self) -> list[str]:
        """The plan as its tokens: one statement for each part, with the milliseconds it takes.

        The last of several ends the plan; a single one is ended by the end-of-text token.
        """
        last = len(self.parts) - 1
        pieces: list[str] = []
        for place, part in enumerate(self.parts):
            busy = place < last or last == 0
            name = part.call.name if part.call else _RUN
            statement = f"{name}({max(round(1e3 * part.predicted_s), 1)});" if busy else _RETURN
            pieces += split(statement, part.tokens)
        return pieces


class OneTask(ScriptTokenizer):
    """Tokenizer of an engine with few different prompts: each prompt is encoded once."""

    def __init__(self) -> None:
        super().__init__()
        self._encoded: dict[tuple[str, ...], list[int]] = {}
        self._decoded: dict[tuple[int, ...], str] = {}

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of the messages; a lone one is all the prompt."""
        if len(messages) == 1:
            return self.encode(messages[0]["content"])
        key = tuple(text for message in messages for text in message.values())
        if key not in self._encoded:
            self._encoded[key] = super().encode_chat(messages)
        return self._encoded[key].copy()

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        key = tuple(token_ids)
        if len(key) < LONG:
            return super().decode(key)
        if key not in self._decoded:
            self._decoded[key] = super().decode(key)
        return self._decoded[key]


def skill_set(shared_tokens: int = SHARED_TOKENS, works: Sequence[JobInstance] = ()) -> SkillSet:
    """Return the skill set of all simulations: a skill has its execution time as argument.

    Args:
        shared_tokens: tokens that all prompts begin with, if possible.
        works: their calls are its skills, beside `run`.
    """
    run = Skill(description="be busy", arguments=(MILLISECONDS,), duration=OF_ARGUMENT)
    calls = {part.call.name: part.call for work in works for part in work.parts if part.call}
    skills = {_RUN: run} | {name: call.skill for name, call in sorted(calls.items())}
    made = SkillSet(name="simulated", prompt=_FILLER, skills=skills)
    messages: list[Message] = [
        {"role": "system", "content": made.prompt_text()},
        {"role": "user", "content": _FILLER},
    ]
    shared = len(ScriptTokenizer().encode_chat(messages)) - _tokens(_FILLER + _END)
    return made.model_copy(update={"prompt": _FILLER * max(shared_tokens - shared + 1, 1)})


def task_text(own_tokens: int = OWN_TOKENS) -> str:
    """Return a task that makes a prompt `own_tokens` longer than its shared beginning."""
    return _FILLER * max(own_tokens - _tokens(_END), 1)


def own_text(work: JobInstance, own_tokens: int = OWN_TOKENS) -> str:
    """Return a text that only this job has, at least as long as `task_text`."""
    text = f"{work.id}: {work.job.text}"
    return text + _FILLER * max(own_tokens - _tokens(_END) - _tokens(text), 0)


def works(
    trace: Trace,
    load: int = 1,
    seed: int = 0,
    prediction_error: float = 0.2,
    true_noise: float = 0.0,
    skip: int = 10,
    skill_sets: Mapping[str, SkillSet] | None = None,
    durations: str = NOISY,
    canceled: float = 0.0,
) -> list[JobInstance]:
    """Return the requests of a trace's jobs, in order of arrival.

    Args:
        trace: the workload.
        load: copies of every job, each with an agent of its own.
        seed: of the errors of predicted execution times.
        prediction_error: standard deviation of the logarithm of predicted over true seconds.
        true_noise: the same, of true over the trace's seconds.
        skip: number of first jobs that do not count in the metrics.
        skill_sets: by name, to cut the plans of jobs without `segment_tokens`.
        durations: one of `DURATIONS`; with the model there are no errors to draw.
        canceled: share of the plans that their robots cancel, in any part but the last of several.

    Raises:
        TraceError: the segments of a job are not known, or the model cannot predict them.
    """
    model = DurationModel(skill_sets or {}) if durations == MODEL else None
    rng = np.random.default_rng(seed)
    made = []
    shapes: dict[tuple[str, str, tuple[int, ...], str], list[tuple[int, float]]] = {}
    for work in _copies(trace, load, skip):
        job = work.job
        kind = (job.skill_set, job.task, job.segment_tokens, job.plan)
        if kind not in shapes:
            shapes[kind] = _segments(job, skill_sets or {})
        shape = _times(job, shapes[kind])
        true = [s * _error(rng, true_noise) for _, s in shape]
        if model:
            parts = _modelled(shape, true, model.predict(job))
        else:
            predicted = [s * _error(rng, prediction_error) for s in true]
            parts = tuple(
                SegmentSpec(tokens, true_s, predicted_s)
                for (tokens, _), true_s, predicted_s in zip(shape, true, predicted, strict=True)
            )
        made.append(replace(work, parts=parts))
    if canceled > 0.0:
        rng = np.random.default_rng([seed, 1])  # of its own: all else stays as it is without
        made = [_canceled(work, canceled, rng) for work in made]
    return sorted(made, key=lambda w: w.arrival_s)


def asked(trace: Trace, load: int = 1, skip: int = 10) -> list[JobInstance]:
    """Return the same without parts, for a model with unknown output."""
    return sorted(_copies(trace, load, skip), key=lambda w: w.arrival_s)


def split(text: str, count: int) -> list[str]:
    """Return a text in `count` pieces, with blanks before it if it is too short."""
    text = text.rjust(count)
    return [*text[: count - 1], text[count - 1 :]]


def _canceled(work: JobInstance, share: float, rng: np.random.Generator) -> JobInstance:
    """Return a work that its robot cancels, with a probability."""
    part = int(rng.integers(max(len(work.parts) - 1, 1)))
    return replace(work, canceled_in=part) if rng.random() < share else work


def _copies(trace: Trace, load: int, skip: int) -> Iterator[JobInstance]:
    for number, job in enumerate(trace.jobs):
        for copy in range(load):
            arrival_s = job.arrival_s + copy * REPLICA_GAP_S
            suffix = f"+{copy}" if copy else ""
            yield JobInstance(job.id + suffix, job, job.agent + suffix, arrival_s, number >= skip)


def _segments(job: Job, skill_sets: Mapping[str, SkillSet]) -> list[tuple[int, float]]:
    """Return tokens of each segment, and its seconds if the trace says nothing of them."""
    if job.segment_tokens:
        return [(tokens, INSTANT_S) for tokens in job.segment_tokens]
    if not job.plan or job.skill_set not in skill_sets:
        raise TraceError(
            f"job {job.id!r}: its segments' tokens are not known: it needs segment_tokens, or a"
            f" plan for a known skill set, not {job.skill_set!r}"
        )
    encode = ScriptTokenizer().encode
    pieces = [p for p in cut(skill_sets[job.skill_set], job.plan) if not isinstance(p, str)]
    return [(len(encode(p.text)), max(p.predicted_s, INSTANT_S)) for p in pieces]


def _times(job: Job, segments: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return tokens and seconds of each segment.

    The job's skills go to segments in order, but none to the last of several: that ends the plan.
    """
    made = list(segments)
    places = range(max(len(made) - 1, 1))
    for place, skill in zip(places, job.skill_times, strict=False):
        made[place] = (made[place][0], max(skill.seconds, INSTANT_S))
    return made


def _modelled(
    segments: Sequence[tuple[int, float]], true: Sequence[float], calls: Sequence[Predicted]
) -> tuple[SegmentSpec, ...]:
    """Return segments with the calls that they make, in order, as `_times` gives them out."""
    made = [
        SegmentSpec(tokens, seconds, INSTANT_S)
        for (tokens, _), seconds in zip(segments, true, strict=True)
    ]
    for place, call in zip(range(max(len(made) - 1, 1)), calls, strict=False):
        made[place] = replace(made[place], predicted_s=max(call.seconds, INSTANT_S), call=call)
    return tuple(made)


def _error(rng: np.random.Generator, spread: float) -> float:
    """Return a factor around 1; without spread nothing is drawn."""
    if spread <= 0:
        return 1.0
    return float(np.clip(rng.lognormal(0.0, spread), LOWEST_ERROR, HIGHEST_ERROR))


def _tokens(text: str) -> int:
    return len(ScriptTokenizer().encode(text))
