"""Small files as LRTrace publishes them, made by hand: the same fields, other times and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DRONE_TASKS: dict[int, tuple[str, list[list[Any]], list[float]]] = {
    0: ("Scene: [] Task: [A] Find the dog.", [["s(", 3.7], ["g(", 2.4]], [1, 1, 1.5]),
    2: ("Scene: [shelf] Task: [A] A photo.", [["mu", 2.5], ["iv", 0.001], ["tp", 0.001]],
        [1, 1, 1.5]),
    6: ("Scene: [dog] Task: [E] It jumps!", [["mu", 2.6], ["ml", 2.2]], [2, 0.2, 0.5]),
}  # fmt: skip

ARM_CALLS = [["move_to", 1.4], ["take", 4.0], ["move_to", 2.9], ["drop", 3.2]]


def drone_job(number: int, time_s: float, agent: int, task: int) -> dict[str, Any]:
    """Return an entry as of the files of drones."""
    text, detail, tuf = DRONE_TASKS[task]
    return {
        "job_id": number, "trigger time": time_s, "agent_id": agent, "trace_id": task,
        "task_input": text, "exe_time_detail": detail,
        "task_exe_time": sum(seconds for _, seconds in detail), "tuf": tuf,
    }  # fmt: skip


def arm_job(number: int, time_s: float, agent: int, moves: int = 2) -> dict[str, Any]:
    """Return an entry as of the file of arms, which has types of robots."""
    detail = ARM_CALLS * moves
    return {
        "job_id": number, "trigger time": time_s, "agent_id": agent,
        "robot_type": "robotarm", "robot_system": "fltrnn", "trace_id": 8 + moves,
        "task_input": "Scene: [cup], Task: [A] Move the cup.", "exe_time_detail": detail,
        "task_exe_time": sum(seconds for _, seconds in detail), "tuf": [1, 1, 1.5],
    }  # fmt: skip


def drones(count: int = 3) -> list[dict[str, Any]]:
    """Return the entries of a file of drones, in bursts of three."""
    tasks = list(DRONE_TASKS)
    return [
        drone_job(n, 30.0 + 4 * (n // 3) + 0.001 * (n % 3), n % 5, tasks[n % 3])
        for n in range(count)
    ]


def arms(count: int = 3) -> list[dict[str, Any]]:
    """Return the entries of a file of arms, in bursts of three."""
    return [arm_job(n, 30.0 + 10 * (n // 3) + 0.001 * (n % 3), n, 2 + n % 2) for n in range(count)]


def compact(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the same in the compact form: texts and worths once, by task."""
    tasks = {
        entry["trace_id"]: {name: entry[name] for name in ("trace_id", "task_input", "tuf")}
        for entry in entries
    }
    left_out = ("trigger time", "task_input", "task_exe_time")
    jobs = [
        {name: value for name, value in entry.items() if name not in left_out}
        | {"trigger_time": entry["trigger time"]}
        for entry in entries
    ]
    return {"source": "them", "tasks": list(tasks.values()), "jobs": jobs}


def write(folder: Path, content: Any, name: str = "lr.json") -> Path:
    """Write a file of JSON, as Python's own writer does: NaN is NaN."""
    path = folder / name
    path.write_text(json.dumps(content, indent=4))
    return path
