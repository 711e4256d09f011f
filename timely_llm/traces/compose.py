"""Composition of workloads from tasks, robots and people (Ling et al. 2024, §6)."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from timely_llm.skills.skill_set import SkillSet
from timely_llm.traces.lines import MAX_REQUESTS
from timely_llm.traces.model import Conversation, Job, Trace, TraceError
from timely_llm.traces.recipes import Recipe
from timely_llm.traces.tasks import PromptSet, TraceTask, TraceTasks

TASK_GAP_S = 0.001
"""Seconds between the tasks of one event, as in the published traces."""

PLANNING_S = 1.27
"""Seconds that a robot is busy besides its execution: the least time between the end of a job and
the same robot's next job in the published trace."""

_ARRIVALS, _CHOICES, _TIMES, _TALKS = range(4)


class _Agents:
    """Robots of one kind, or people. The agent that has been free for longest gets the next job.

    A new agent gets a job only if no known one is free, as in the published traces.
    """

    def __init__(self, kind: str, count: int) -> None:
        self._kind = kind
        self._count = count
        self._known = 0
        self._free_at: list[tuple[float, int]] = []

    def ready_s(self, now: float, needed: int) -> float:
        """Return the time from which `needed` agents are free, `now` at the earliest."""
        new = self._count - self._known
        times = sorted(time for time, _ in self._free_at)
        return max(now, times[needed - new - 1]) if needed > new else now

    def take(self, now: float) -> int | None:
        """Return the number of a free agent; None if all are busy."""
        if self._free_at and self._free_at[0][0] <= now:
            return heapq.heappop(self._free_at)[1]
        if self._known == self._count:
            return None
        self._known += 1
        return self._known - 1

    def busy(self, agent: int, until_s: float) -> str:
        """Record that an agent is busy, and return its name."""
        heapq.heappush(self._free_at, (until_s, agent))
        return f"{self._kind}_{agent}"


def compose(
    recipe: Recipe,
    tasks: TraceTasks,
    skill_sets: Mapping[str, SkillSet],
    prompts: PromptSet | None = None,
    name: str = "composed",
    source: str = "",
) -> Trace:
    """Return the workload of a recipe. The arguments determine it.

    Tasks of an event go to free robots. A task without a free robot is left out; the source of the
    trace counts such tasks. Groups wait until enough robots are free.

    Args:
        recipe: the recipe.
        tasks: kinds of tasks.
        skill_sets: skill sets of the robots, by name.
        prompts: prompts of people.
        name: name of the trace.
        source: source of the trace.

    Raises:
        TraceError: a task is not known or has no robots, or there are too many requests.
    """
    tasks.chosen(_flat(recipe), skill_sets)
    for group in recipe.sequence() or [(task,) for task in recipe.names()]:
        _check_robots(recipe, tasks, group)
    jobs, left_out = _jobs(recipe, tasks, skill_sets)
    talks, unheard = _talks(recipe, prompts) if recipe.talks_per_s else ([], 0)
    for count, what in ((left_out, "tasks"), (unheard, "conversations")):
        if count:
            source += f"; {count} {what} left out since all were busy"
    jobs.sort(key=lambda job: job.arrival_s)
    return Trace(name, source, tuple(jobs), tuple(talks))


def _jobs(
    recipe: Recipe, tasks: TraceTasks, skill_sets: Mapping[str, SkillSet]
) -> tuple[list[Job], int]:
    """Return the jobs, and the number of tasks that were left out."""
    pools = {kind: _Agents(kind, count) for kind, count in recipe.agents.items()}
    rng = _rng(recipe, _TIMES)
    jobs: list[Job] = []
    left_out = 0
    delay_s = 0.0
    for event_s, names in _events(recipe, tasks):
        begin_s = event_s + delay_s
        if recipe.groups:
            kinds = Counter(tasks.tasks[name].skill_set for name in names)
            begin_s = max(pools[kind].ready_s(begin_s, n) for kind, n in kinds.items())
            delay_s = begin_s - event_s
        if recipe.duration_s is not None and begin_s > recipe.duration_s:
            break
        for place, name in enumerate(names):
            task, arrival_s = tasks.tasks[name], begin_s + place * TASK_GAP_S
            pool = pools[task.skill_set]
            agent = pool.take(arrival_s)
            if agent is None:
                left_out += 1
                continue
            times = task.execute(skill_sets[task.skill_set], rng)
            seconds = math.fsum(time.seconds for time in times)
            jobs.append(
                Job(
                    id=str(len(jobs)),
                    arrival_s=arrival_s,
                    agent=pool.busy(agent, arrival_s + seconds + PLANNING_S),
                    task=name,
                    skill_set=task.skill_set,
                    text=task.text,
                    time_utility=task.time_utility,
                    skill_times=times,
                    plan=task.plan,
                    segment_tokens=task.segment_tokens,
                )
            )
        if len(jobs) + left_out > MAX_REQUESTS:
            raise TraceError(f"this would be more than {MAX_REQUESTS} tasks: make it shorter")
    return jobs, left_out


def _events(recipe: Recipe, tasks: TraceTasks) -> Iterator[tuple[float, tuple[str, ...]]]:
    """Yield the time and the tasks of each event."""
    groups, names = recipe.sequence(), recipe.names()
    if not groups and not names:
        return
    arrivals, choices = _rng(recipe, _ARRIVALS), _rng(recipe, _CHOICES)
    most = recipe.events
    if most is None and recipe.duration_s is None:
        most = len(groups)
    time_s, number = 0.0, 0
    while most is None or number < most:
        time_s += float(arrivals.exponential(1.0 / recipe.events_per_s))
        if recipe.duration_s is not None and time_s > recipe.duration_s:
            return
        if groups:
            yield time_s, groups[number % len(groups)]
        else:
            yield time_s, _choice(recipe, names, tasks.tasks, choices)
        number += 1


def _choice(
    recipe: Recipe,
    names: Sequence[str],
    tasks: Mapping[str, TraceTask],
    rng: np.random.Generator,
) -> tuple[str, ...]:
    """Return 1 to `max_tasks` tasks."""
    count = int(rng.integers(1, recipe.max_tasks + 1))
    if recipe.urgent_share is None:
        return tuple(names[int(i)] for i in rng.integers(len(names), size=count))
    classes = [[n for n in names if tasks[n].urgent == urgent] for urgent in (False, True)]
    if not classes[0] or not classes[1]:
        raise TraceError("an urgent share needs tasks that are urgent and tasks that are not")
    urgent = rng.random(count) < recipe.urgent_share
    return tuple(classes[int(u)][int(rng.integers(len(classes[int(u)])))] for u in urgent)


def _talks(recipe: Recipe, prompts: PromptSet | None) -> tuple[list[Conversation], int]:
    """Return the conversations, and the number of omitted ones."""
    if prompts is None or recipe.duration_s is None:
        raise TraceError("conversations need prompts and a duration")
    people, rng = _Agents("person", recipe.people), _rng(recipe, _TALKS)
    talks: list[Conversation] = []
    left_out = 0
    time_s = 0.0
    while (
        time_s := time_s + float(rng.exponential(1.0 / recipe.talks_per_s))
    ) <= recipe.duration_s:
        prompt, tokens = prompts.draw(rng)
        if len(talks) + left_out == MAX_REQUESTS:
            raise TraceError(f"this would be more than {MAX_REQUESTS} conversations")
        person = people.take(time_s)
        if person is None:
            left_out += 1
            continue
        talk = Conversation(
            id=f"talk_{len(talks)}",
            arrival_s=time_s,
            agent=f"person_{person}",
            prompt_tokens=prompt.prompt_tokens,
            output_tokens=tokens,
            text=prompt.text,
        )
        people.busy(person, time_s + talk.ttft_s + tokens * talk.tpot_s)
        talks.append(talk)
    return talks, left_out


def _check_robots(recipe: Recipe, tasks: TraceTasks, group: Sequence[str]) -> None:
    for kind, needed in Counter(tasks.tasks[name].skill_set for name in group).items():
        if recipe.agents.get(kind, 0) < needed:
            raise TraceError(
                f"{', '.join(group)} at once: {needed} agents of {kind} are needed, there are"
                f" {recipe.agents.get(kind, 0)}"
            )


def _flat(recipe: Recipe) -> tuple[str, ...]:
    return recipe.names() + tuple(name for group in recipe.sequence() for name in group)


def _rng(recipe: Recipe, purpose: int) -> np.random.Generator:
    """Return a random generator for a purpose; each purpose has its own stream."""
    return np.random.default_rng([recipe.seed, purpose])
