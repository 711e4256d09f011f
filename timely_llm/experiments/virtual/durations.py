"""Predicted execution times of a trace's jobs, by the skill sets' model (Ling et al. 2024, §4.3).

A polynomial of its argument predicts a skill, a lower bound a search. The server corrects both by
the reports of the robots, each skill by itself, so each keeps its name in the simulated plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.skills.checkers import cut
from timely_llm.skills.skill import Argument, Duration, Skill
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Piece
from timely_llm.traces.model import Job, TraceError

NOISY, MODEL = "noisy", "model"
DURATIONS = (NOISY, MODEL)
"""Predictions: the true times multiplied by a log-normal error, or those of the model."""

SEGMENT = "segment"
"""Name of all skills in the jobs of a recording, which knows the times of segments only."""

MILLISECONDS = Argument(name="ms", type="integer", unit="ms", minimum=0, maximum=86_400_000)
OF_ARGUMENT = Duration(polynomial=(0.0, 0.001))
"""As many seconds as the call's milliseconds say."""


@dataclass(frozen=True)
class Predicted:
    """A call in a simulated plan, in place of one in the job's plan.

    Attributes:
        name: of its skill in the simulated skill set.
        seconds: predicted for it before any report.
        duration: of its skill in the simulated skill set.
    """

    name: str
    seconds: float
    duration: Duration

    @property
    def skill(self) -> Skill:
        """The skill in the simulated skill set."""
        return Skill(description="", arguments=(MILLISECONDS,), duration=self.duration)


class DurationModel:
    """The execution-time model of skill sets, for the plans of jobs.

    Args:
        skill_sets: by name.
    """

    def __init__(self, skill_sets: Mapping[str, SkillSet]) -> None:
        self._skill_sets = skill_sets
        self._cut: dict[tuple[str, str], list[Piece]] = {}

    def predict(self, job: Job) -> list[Predicted]:
        """Return a prediction for each skill that the job executes, or each of its segments.

        A job with the tokens of its segments and no times of skills executes nothing.

        Raises:
            TraceError: the job has no plan, or not one that calls what it executes.
        """
        skill_set = self._skill_sets.get(job.skill_set)
        if not job.plan or skill_set is None:
            raise TraceError(
                f"job {job.id!r}: durations model needs the plan of each job, with its arguments,"
                " for a known skill set; a trace imported from LRTrace has times only: use"
                " durations noisy"
            )
        kind = (job.skill_set, job.plan)
        if kind not in self._cut:
            try:
                pieces = [p for p in cut(skill_set, job.plan) if isinstance(p, Piece)]
            except PlanError as error:
                raise TraceError(f"job {job.id!r}: durations model: its plan: {error}") from error
            self._cut[kind] = pieces
        pieces = self._cut[kind]
        if any(time.skill != SEGMENT for time in job.skill_times):
            return self._calls(job, skill_set, [call for piece in pieces for call in piece.calls])
        if job.skill_times and len(job.segment_tokens) != len(pieces):
            raise TraceError(
                f"job {job.id!r}: durations model: its plan has {len(pieces)} segments, but"
                f" {len(job.segment_tokens)} were recorded: use durations noisy"
            )
        executed = job.skill_times or not job.segment_tokens
        return [self._piece(skill_set, piece) for piece in pieces] if executed else []

    def _calls(self, job: Job, skill_set: SkillSet, calls: list[SkillCall]) -> list[Predicted]:
        """Return a prediction for each executed skill: of the next call of its name.

        A block that is repeated makes its calls again: the search for a call then begins anew.
        """
        made, place = [], 0
        for time in job.skill_times:
            order = [*range(place, len(calls)), *range(place)]
            found = next((at for at in order if calls[at].name == time.skill), None)
            if found is None:
                raise TraceError(
                    f"job {job.id!r}: durations model: it executes {time.skill!r}, which its plan"
                    " does not call: use durations noisy"
                )
            made.append(self._call(skill_set, calls[found]))
            place = found + 1
        return made

    def _piece(self, skill_set: SkillSet, piece: Piece) -> Predicted:
        if len(piece.calls) == 1:
            return self._call(skill_set, piece.calls[0])
        return Predicted("run", piece.predicted_s, OF_ARGUMENT)

    @staticmethod
    def _call(skill_set: SkillSet, call: SkillCall) -> Predicted:
        duration = skill_set.skills[call.name].duration
        own = duration if duration.scene_dependent else OF_ARGUMENT
        return Predicted(f"{skill_set.name}_{call.name}", call.predicted_s, own)
