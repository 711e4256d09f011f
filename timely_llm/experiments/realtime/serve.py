"""Service of a workload by a real engine in real time, and its replay in virtual time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import cast

import numpy as np

from timely_llm.core.clock import WallClock
from timely_llm.core.segment import Segment
from timely_llm.engines.contract import Engine
from timely_llm.engines.tokenizer import HubTokenizer
from timely_llm.engines.wrappers import ScriptedEngine
from timely_llm.experiments.contract import ExperimentError, ReportProgress
from timely_llm.experiments.virtual import workload
from timely_llm.experiments.virtual.clients import (
    SimulatedClients,
    SimulatedPerson,
    SimulatedRobot,
    stream_request,
)
from timely_llm.experiments.virtual.outcome import ConversationOutcome, Run
from timely_llm.experiments.virtual.simulation import (
    MAX_TOKENS,
    SimulationSettings,
    request_for,
    script,
    simulate_works,
    true_seconds,
)
from timely_llm.experiments.virtual.workload import INSTANT_S, JobInstance, SegmentSpec
from timely_llm.policies.contract import Policy
from timely_llm.serving.limits import AdmissionLimits
from timely_llm.serving.loop import Loop
from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.model import Conversation
from timely_llm.traces.streams import request_of

MAX_MODEL_LEN = 4096
"""Most tokens of a sequence: a prompt of 2,884 as in Ling et al. 2024, and the answer."""

_LEAST_SHARED_TOKENS = 64


def longest(works: Sequence[JobInstance]) -> int:
    """Return the tokens of the longest answer, including EOS."""
    return 1 + max((sum(part.tokens for part in work.parts) for work in works), default=0)


def fitted(
    settings: SimulationSettings, max_model_len: int, answer_tokens: int
) -> SimulationSettings:
    """Return settings with prompts as in virtual time, shortened to the engine's limit.

    Args:
        settings: settings of the run.
        max_model_len: most tokens of one sequence.
        answer_tokens: tokens of the longest answer.

    Raises:
        ExperimentError: the answer leaves too little room for a prompt.
    """
    most = max_model_len - settings.own_tokens - answer_tokens
    if most < _LEAST_SHARED_TOKENS:
        least = _LEAST_SHARED_TOKENS + settings.own_tokens
        raise ExperimentError(
            f"the workload has an answer of {answer_tokens} tokens after a prompt of at least"
            f" {least}: the engine takes {max_model_len}"
        )
    return replace(settings, shared_tokens=min(settings.shared_tokens, most))


def serve_scripted(
    works: Sequence[JobInstance],
    engine: Engine,
    policy: Policy,
    settings: SimulationSettings,
    progress: ReportProgress = lambda done, total: None,
    conversations: Sequence[Conversation] = (),
) -> Run:
    """Serve jobs with known segments, and conversations, in real time.

    Args:
        works: jobs, in order of arrival.
        engine: a real engine without requests; it is not closed.
        policy: a new policy.
        settings: settings of the run.
        progress: called with the ended and the total number of requests.
        conversations: in order of arrival.

    Raises:
        SimulationError: requests are left that no policy serves.
    """
    clock = TraceClock()
    clients = SimulatedClients(clock, true_seconds, settings.network_s, settings.reports)
    answers = script(works, conversations)
    vocabulary = len(cast(HubTokenizer, engine.tokenizer))
    scripted = ScriptedEngine(engine, vocabulary, answers.__getitem__, workload.OneTask())
    loop = Loop(scripted, policy, clock, settings.step_time(), settings.timeouts())
    skill_set = workload.skill_set(settings.shared_tokens)
    loop.register(skill_set)
    for work in works:
        task = workload.own_text(work, settings.own_tokens)
        clients.enter(work, request_for(work, skill_set.name, task, settings))
    for talk in conversations:
        clients.enter_person(talk, stream_request(talk, MAX_TOKENS))
    clock.start(works, conversations)
    return clients.run(loop, clock.rest, progress)


PLAN_TOKENS = 128
"""Most tokens of a plan."""

_HEAD_START_S = 0.5


@dataclass(frozen=True)
class ModelOutput:
    """A model's answers to a workload.

    Attributes:
        run: outcomes of requests. The segments of jobs and the lengths of conversations are those
            of the model's answers.
        shared_tokens, own_tokens: mean tokens of the prompts of plans.
    """

    run: Run
    shared_tokens: int
    own_tokens: int


class TraceClock:
    """The wall clock, on the time of a trace."""

    def __init__(self) -> None:
        self._wall = WallClock()
        self._origin_s = self._wall.now()

    def start(self, works: Sequence[JobInstance], conversations: Sequence[Conversation]) -> None:
        """Set the time to shortly before the first arrival."""
        arrivals_s = [w.arrival_s for w in works[:1]] + [c.arrival_s for c in conversations[:1]]
        now_s = min(arrivals_s, default=0.0) - _HEAD_START_S
        self._origin_s = self._wall.now() - now_s

    def now(self) -> float:
        """Return the time of the trace, seconds."""
        return self._wall.now() - self._origin_s

    def rest(self, until_s: float) -> None:
        """Sleep until a time of the trace."""
        time.sleep(max(until_s - self.now(), 0.0))


class _SegmentNotes:
    """The tokens and execution times of the segments that a model generated."""

    def __init__(self, engine: Engine, rng: np.random.Generator, error: float) -> None:
        self._encode = engine.tokenizer.encode
        self._rng = rng
        self._error = error
        self.parts: dict[str, list[SegmentSpec]] = {}

    def with_segments(self, work: JobInstance) -> JobInstance:
        """Return a job with the segments that the model generated for it."""
        return replace(work, parts=tuple(self.parts.get(work.id, ())))

    def seconds(self, robot: SimulatedRobot, segment: Segment) -> float:
        """Draw and keep the true execution time of a segment; return it, seconds."""
        predicted_s = max(segment.predicted_s, INSTANT_S)
        error = self._rng.lognormal(0.0, self._error) if self._error else 1.0
        true_s = predicted_s / error if segment.calls else INSTANT_S
        part = SegmentSpec(len(self._encode(segment.text)), true_s, predicted_s)
        self.parts.setdefault(robot.work.id, []).append(part)
        return true_s


def serve(
    works: Sequence[JobInstance],
    skill_sets: dict[str, SkillSet],
    engine: Engine,
    policy: Policy,
    settings: SimulationSettings,
    progress: ReportProgress = lambda done, total: None,
    conversations: Sequence[Conversation] = (),
) -> ModelOutput:
    """Serve jobs and conversations in real time with the model's own answers.

    Plans are constrained to the grammar of their skill set, so that all of them can be executed.
    Arguments are those of `serve_scripted`, and `skill_sets`, the jobs' skill sets by name. The
    segments of `works` are ignored.

    Raises:
        RequestError: a conversation is longer than any server admits.
        SimulationError: requests are left that no policy serves.
    """
    clock = TraceClock()
    rng = np.random.default_rng(settings.seed)
    notes = _SegmentNotes(engine, rng, settings.prediction_error)
    clients = SimulatedClients(clock, notes.seconds, settings.network_s, settings.reports)
    loop = Loop(
        engine, policy, clock, settings.step_time(), settings.timeouts(),
        AdmissionLimits(constrained=True),
    )  # fmt: skip
    shared = {name: loop.register(made) for name, made in skill_sets.items()}
    clock.start(works, conversations)
    for work in works:
        request = request_for(work, work.job.skill_set, work.job.text, settings)
        clients.enter(work, replace(request, max_tokens=PLAN_TOKENS))
    for talk in conversations:
        clients.enter_person(talk, request_of(talk))
    run = clients.run(loop, clock.rest, progress)
    outcomes = tuple(
        replace(outcome, work=notes.with_segments(outcome.work)) for outcome in run.outcomes
    )
    talks = tuple(map(_conversation_outcome, clients.people.values()))
    shared_tokens = round(fmean(shared.values())) if shared else 0
    prompts = clients.stats.prompt_tokens - sum(
        talker.result.prompt_tokens for talker in clients.people.values() if talker.result
    )
    own_tokens = round(prompts / max(len(works), 1)) - shared_tokens
    return ModelOutput(
        replace(run, outcomes=outcomes, conversations=talks), shared_tokens, own_tokens
    )


def _conversation_outcome(talker: SimulatedPerson) -> ConversationOutcome:
    """Return the outcome of a conversation, with the measured lengths of prompt and answer."""
    talk, result = talker.outcome, talker.result
    known = talk.conversation
    heard = replace(
        known,
        prompt_tokens=result.prompt_tokens if result else known.prompt_tokens,
        output_tokens=len(talk.times_s) or known.output_tokens,
        max_tokens=known.output_tokens,
    )
    return replace(talk, conversation=heard)


def again(output: ModelOutput, policy: Policy, settings: SimulationSettings) -> Run:
    """Replay a run in virtual time with the same tokens, execution times and predictions."""
    heard = [outcome.work for outcome in output.run.outcomes if outcome.work.parts]
    virtual = replace(
        settings, shared_tokens=output.shared_tokens, own_tokens=max(output.own_tokens, 1)
    )
    asked = [talk.conversation for talk in output.run.conversations if talk.times_s]
    return simulate_works(heard, policy, virtual, asked)
