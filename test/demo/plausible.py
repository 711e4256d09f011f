"""A made-up run: what a server and a fleet would have written, in seconds from 0."""

from __future__ import annotations

import json
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from test.core.events.lines import Line, whole
from timely_llm.core.time_utility import NORMAL, URGENT

STEP_S = 0.025
CALLS = (("g('cat')", 3.0), ("mf(120)", 2.2), ("tc(90)", 1.1), ("tp()", 0.6), ("d(2)", 2.0))


@dataclass
class _Job:
    request_id: str
    agent: str
    urgent: bool
    asked_s: float
    pieces: list[tuple[str, float, int]]
    made: int = 0
    tokens: int = -2
    arrived: list[int] = field(default_factory=list)
    executed: int = 0
    busy_until_s: float = -1.0
    idle_since_s: float = 0.0
    response_s: float = -1.0
    waiting_s: float = 0.0


def events(
    robots: int = 8, duration_s: float = 20.0, seed: int = 0, whole: bool = False
) -> list[tuple[str, Line]]:
    """Return ("server" | "fleet", event) in the order of time; `whole` plans as fcfs makes them."""
    return _Run(robots, duration_s, np.random.default_rng(seed), whole).play()


class _Run:
    def __init__(
        self, robots: int, duration_s: float, rng: np.random.Generator, whole: bool
    ) -> None:
        self.agents = [f"robot_{i}" for i in range(robots)]
        self.duration_s, self.rng, self.whole = duration_s, rng, whole
        self.jobs: dict[str, _Job] = {}
        self.out: list[tuple[str, Line]] = []
        self.asked = 0

    def write(self, file: str, event: str, t: float, **values: object) -> None:
        self.out.append((file, whole({"event": event, "t": round(t, 6), **values})))

    def play(self) -> list[tuple[str, Line]]:
        for agent in self.agents:
            self.write("fleet", "robot", 0.0, agent=agent)
        now, burst_s = 0.0, 0.5
        while now < self.duration_s or (self.jobs and now < self.duration_s + 15):
            if now >= burst_s and now < self.duration_s:
                burst_s = now + float(self.rng.exponential(2.0))
                for agent in self.rng.permutation(self.agents)[: self.rng.integers(1, 9)]:
                    self.ask(str(agent), now)
            self.step(now)
            now += STEP_S
            for job in list(self.jobs.values()):
                self.execute(job, now)
        return self.out

    def ask(self, agent: str, now: float) -> None:
        urgent = bool(self.rng.random() < 0.35)
        old = self.jobs.get(agent)
        if old is not None:
            if old.urgent or not urgent:
                return
            self.done(old, "canceled", now)
            self.write("server", "end", now, id=old.request_id, code="canceled", message="")
        self.asked += 1
        count = 1 if urgent else int(self.rng.integers(2, 5))
        pieces = [
            (*CALLS[self.rng.integers(len(CALLS))], int(self.rng.integers(5, 12)))
            for _ in range(count)
        ]
        job = _Job(f"{agent}-{self.asked}", agent, urgent, now, pieces, idle_since_s=now)
        self.jobs[agent] = job
        utility = URGENT if urgent else NORMAL
        tuf = {"beta": utility.beta, "alpha": utility.alpha, "ert_s": utility.ert_s}
        about = {"id": job.request_id, "agent": agent, "task": "Find the cat.", **tuf}
        self.write("fleet", "ask", now, urgent=urgent, **about)
        self.write("server", "request", now + 0.002, **about)

    def step(self, now: float) -> None:
        ready = [job for job in self.jobs.values() if job.made < len(job.pieces)]
        if not self.whole:
            ready = [j for j in ready if j.busy_until_s < now + 0.6]
            ready.sort(key=lambda job: (not job.urgent, job.made > 0, job.asked_s))
        batch = ready[:4]
        if not batch:
            return
        ids = [job.request_id for job in batch]
        self.write("server", "step", now, s=STEP_S - 0.002, ids=ids)
        for job in batch:
            job.tokens += 1
            if job.tokens >= job.pieces[job.made][2]:
                job.made, job.tokens = job.made + 1, 0
                complete = job.made == len(job.pieces)
                if not self.whole:
                    self.publish(job, job.made - 1, now + STEP_S)
                elif complete:
                    for index in range(len(job.pieces)):
                        self.publish(job, index, now + STEP_S)
                if complete:
                    at_s = now + STEP_S
                    self.write("server", "end", at_s, id=job.request_id, code="none", message="")

    def publish(self, job: _Job, index: int, now: float) -> None:
        text, seconds, _ = job.pieces[index]
        due_s = max(job.busy_until_s, now) + seconds
        final = index == len(job.pieces) - 1
        self.write(
            "server", "segment", now, id=job.request_id, index=index, text=f"{text};",
            predicted_s=seconds, final=final, due_s=due_s, epoch=0, blocking=False,
        )  # fmt: skip
        job.arrived.append(index)
        self.write("fleet", "receive", now, id=job.request_id, index=index, final=final)

    def execute(self, job: _Job, now: float) -> None:
        if now < job.busy_until_s:
            return
        if job.executed > 0 and job.busy_until_s >= 0:
            at_s, job.busy_until_s = job.busy_until_s, -1.0
            job.idle_since_s = at_s
            about = {"id": job.request_id, "index": job.executed - 1}
            self.write("fleet", "finish", at_s, skipped=False, **about)
            self.write("server", "report", at_s, state="finished", due_s=at_s, **about)
            if job.executed == len(job.pieces):
                self.done(job, "finished", now)
                return
        if job.executed < len(job.arrived):
            job.waiting_s += now - job.idle_since_s
            if job.response_s < 0:
                job.response_s = now - job.asked_s
            text, seconds, _ = job.pieces[job.executed]
            seconds *= float(self.rng.lognormal(0.0, 0.1))
            about = {"id": job.request_id, "index": job.executed}
            self.write("fleet", "start", now, **about)
            self.write("fleet", "call", now, call=text, s=seconds, **about)
            job.busy_until_s = now + seconds
            job.executed += 1

    def done(self, job: _Job, outcome: str, now: float) -> None:
        del self.jobs[job.agent]
        utility = (URGENT if job.urgent else NORMAL).clamped(job.response_s)
        self.write(
            "fleet", "done", now, id=job.request_id, agent=job.agent, urgent=job.urgent,
            outcome=outcome, error_code=0, error_msg="", response_s=job.response_s,
            waiting_s=job.waiting_s, utility=utility if job.response_s >= 0 else 0.0,
            plan="", segments=len(job.arrived), prompt_tokens=30, generated_tokens=40,
            recomputed_tokens=0,
        )  # fmt: skip


def main(parameters: dict[str, str]) -> None:
    """Be a fleet that finds its server's event log beside its own log, and write both in real time.

    With an "event_log" but no "log": be a server that is ready at once and waits to be ended.
    """
    if "log" not in parameters:
        write(Path(parameters["event_log"]), {"event": "ready", "t": time.monotonic()})
        signal.pause()
    log = Path(parameters["log"])
    event_log = log.with_name(log.name.replace("fleet", "server"))
    begin_s = time.monotonic()
    for file, event in events(
        int(parameters["robots"]),
        float(parameters["duration_s"]),
        int(parameters["seed"]),
        whole="fcfs" in log.name,
    ):
        event = moved(event, begin_s, float(parameters.get("speed", "1")))
        time.sleep(max(event["t"] - time.monotonic(), 0.0))
        write(log if file == "fleet" else event_log, event)


def moved(event: Line, by_s: float, speed: float) -> Line:
    """Return the event as it would be in a run that is faster and begins later."""
    times: Line = {name: event[name] / speed + by_s for name in ("t", "due_s") if name in event}
    return {**event, **times}


def write(path: Path, event: Line) -> None:
    with path.open("a") as file:
        file.write(json.dumps(event) + "\n")


if __name__ == "__main__":
    pairs = (word.split(":=", 1) for word in sys.argv[1:] if ":=" in word)
    main({name: str(json.loads(value)) for name, value in pairs})
