"""One task of a simulated robot."""

from __future__ import annotations

from typing import Any

from rclpy.action.client import ClientGoalHandle

from timely_llm.action import Plan
from timely_llm.robots.execution import PlanRun
from timely_llm.robots.tasks import Task


class Job:
    """One task of a robot, from asking to its end; a run for each epoch of its plan."""

    def __init__(self, request_id: str, task: Task, run: PlanRun) -> None:
        self.request_id = request_id
        self.task = task
        self.runs = [run]
        self.epoch = 0
        self.failed = False
        self.handle: ClientGoalHandle[Any, Any, Any] | None = None
        self.result: Plan.Result | None = None
        self.canceled = False
        self.said_returned = False

    @property
    def run(self) -> PlanRun:
        """The newest epoch's."""
        return self.runs[-1]

    def begin(self, epoch: int, run: PlanRun) -> None:
        """Drop what is left of older epochs."""
        self.epoch, self.failed = epoch, False
        self.runs.append(run)

    def outcome(self) -> dict[str, Any]:
        """Return what came of it, for a journal."""
        result, runs = self.result or Plan.Result(), self.runs
        response_s = runs[0].response_s
        utility = self.task.time_utility.clamped(response_s) if response_s >= 0 else 0.0
        return {
            "urgent": self.task.urgent,
            "error_code": result.error_code,
            "error_msg": result.error_msg,
            "response_s": round(response_s, 6),
            "waiting_s": round(sum(run.waiting_s for run in runs), 6),
            "utility": round(utility, 6),
            "plan": result.plan,
            "epochs": len(runs),
            "segments": sum(run.segments for run in runs),
            "prompt_tokens": result.prompt_tokens,
            "generated_tokens": result.generated_tokens,
            "recomputed_tokens": result.recomputed_tokens,
        }
