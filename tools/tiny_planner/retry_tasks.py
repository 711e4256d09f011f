"""Recovery with history, for both robots: a task repeated after one of its segments failed.

The server repeats the task and appends what it had delivered, why the robot failed and what was
done. The right answer is a short safe move, then the failed statement and the rest of the task; a
loop that failed runs again from its start, and what the arm let go is picked up again. A sample's
key is that of the repeated task: it is in the same split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

from tools.tiny_planner import arm_look_tasks, arm_tasks, motion_tasks, object_tasks
from tools.tiny_planner.answers import NOTHING, outside, own_words
from tools.tiny_planner.words import MOVERS, Task, draw_name, with_article

FAILED = (
    "\n[E] You provided me with plan {plan}, but I failed because {reason}. "
    "Execution history: {done}"
)
SEGMENT = re.compile(r"\?[^{]*\{|\}(?=;->True)|;->True;|\};->False;|[^;]+;")
BACK, UP, OPEN = "mb(30);", "mu(50);", "open();"

TWICE = 0.2  # share of the tasks with a second failed plan

# Why a robot failed, by what to do first. {a} is a person, {x} the object that it was about.
IN_THE_WAY = (
    "{a} is in the way", "{a} is passing by", "{a} is too close", "the way is blocked",
    "something is in the way", "no reason given",
)  # fmt: skip
IN_THE_AIR = ("the wind is too strong", "the wind is pushing me down", "I am too low")
OUT_OF_SIGHT = ("the {x} is out of sight", "I cannot see the {x}", "I lost the {x}")
GRIPPER = (
    "the gripper is blocked", "the gripper is stuck", "the gripper slipped", "the hand is blocked",
    "{a} is in the way", "the {x} slipped", "the {x} fell", "the {x} is out of reach",
    "I dropped the {x}", "no reason given",
)  # fmt: skip

DRONE_BASES = {
    "move": motion_tasks.move, "patrol": motion_tasks.patrol,
    "find": object_tasks.find, "visit": object_tasks.visit,
}  # fmt: skip
ARM_BASES = {
    "arm_move": arm_tasks.move, "arm_stack": arm_tasks.stack, "arm_clean": arm_look_tasks.clean,
}  # fmt: skip

# The answer to a failure: the reason, and the next plan. It is made from the failed plan's
# segments, the index of the one that failed, and how many safe moves go before the task.
Next = tuple[str, str]


def drone(rng: random.Random) -> Task:
    """A drone's task again: back off from what is in the way, rise in the wind, search if lost."""
    family = rng.choice(("move", "move", "patrol", "find", "find", "visit"))
    task = DRONE_BASES[family](rng)

    def answer(texts: list[str], failed: int, safe: int) -> Next:
        start = max(failed, safe)
        if family == "find":
            thing = task.objects[0]
            if rng.random() < 0.4:
                return _reason(rng, OUT_OF_SIGHT, thing), UP + _search(task.plan, thing)
            rest = "".join(texts[start:])
            if texts[safe].startswith("?") and start > safe:
                rest = rest.removesuffix("};->False;")
        else:
            loop = next((i for i, text in enumerate(texts) if re.match(r"\d+\{", text)), start)
            rest = "".join(texts[min(start, loop) :])
        reasons, first = rng.choice(((IN_THE_WAY, BACK), (IN_THE_AIR, UP)))
        return _reason(rng, reasons, ""), first + rest

    return _again(rng, family, task, answer)


def arm(rng: random.Random) -> Task:
    """An arm's task again: let go, then every object that is not yet in its place."""
    family = rng.choice(tuple(ARM_BASES))
    task = ARM_BASES[family](rng)

    def answer(texts: list[str], failed: int, safe: int) -> Next:
        looks = texts[safe] == "look();"
        start = safe + looks
        start += max(0, failed - start) // 2 * 2
        rest, thing = "".join(texts[start:]), texts[start].partition("'")[2].partition("'")[0]
        if looks:
            names = [text.split("'")[1] for text in texts[start:] if text.startswith("pick")]
            rest = f"look();{outside(names)}{rest}"
        return _reason(rng, GRIPPER, thing if failed >= safe + looks else ""), OPEN + rest

    return _again(rng, family, task, answer)


def segments(plan: str) -> list[str]:
    """Return the segments of a plan of this corpus, as the server delivers them.

    Not read by the server's parser: what trained the model can be drawn again without it.
    """
    return SEGMENT.findall(own_words(plan))


def _search(plan: str, thing: str) -> str:
    """Return a plan that goes to a thing, with a search for it first."""
    return plan if plan.startswith("?") else f"?s('{thing}'){{{plan}}};->False;"


def _reason(rng: random.Random, reasons: tuple[str, ...], thing: str) -> str:
    """Return why it failed; a reason with an object only where there is one."""
    reason = rng.choice([reason for reason in reasons if thing or "{x}" not in reason])
    return reason.format(a=with_article(draw_name(rng, MOVERS)), x=thing)


def _again(
    rng: random.Random, family: str, task: Task, answer: Callable[[list[str], int, int], Next]
) -> Task:
    """Return the task repeated after one failure, or after a second one of the next plan.

    The history is that of all plans; the repeated plan is the last one.
    """
    plan, history, after = task.plan, "", ""
    for safe in range(1 + (rng.random() < TWICE)):
        texts = segments(plan)
        last = max(index for index, text in enumerate(texts) if "->True;" in text)
        failed = rng.randrange(last)
        delivered = "".join(texts[: rng.randint(failed + 1, last + 1)])
        history += "".join(texts[:failed])
        reason, plan = answer(texts, failed, safe)
        after = FAILED.format(plan=delivered, reason=reason, done=history or NOTHING)
    return replace(task, plan=plan, after=after, family=family)
