"""Task families of the arm that need what is on the table: arm_clean, arm_sort, arm_question.

Where the scene lists no loose thing, the plan begins with `look();` and goes on after its answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tools.tiny_planner.answers import outside
from tools.tiny_planner.arm_tasks import carry
from tools.tiny_planner.arm_words import (
    BOXES,
    ITEMS,
    KINDS,
    SURFACES,
    draw_boxes,
    draw_name,
    draw_names,
)
from tools.tiny_planner.words import Task, join_words, noun_of, with_article

LISTED = 0.35  # share of the tasks with a scene that lists the things
CLEAN = (
    "Clean the {s}: put everything into the {c}.", "Clear the {s} and put everything into the {c}.",
    "Clean up the {s}. Everything goes into the {c}.", "Put everything on the {s} into the {c}.",
    "Tidy up the {s}: everything belongs into the {c}.",
)  # fmt: skip
SORT = (
    "Sort the things: {k} into the {c}, {l} into the {d}.",
    "Put all {k} into the {c} and all {l} into the {d}.",
    "Sort the {k} and the {l}: {k} into the {c}, {l} into the {d}.",
)
NAME_ALL = (
    "What is on the {s}?", "Which things are on the {s}?", "Name everything on the {s}.",
    "Tell me what is on the {s}.", "Which objects lie on the {s}?",
)  # fmt: skip
IS_THERE = (
    "Is the {x} on the {s}?", "Look at the {s}: is the {x} there?", "Does the {x} lie on the {s}?",
    "Look at the {s} and tell me if you see {a}.",
)  # fmt: skip


def _mixed(
    rng: random.Random, names: Sequence[str], fixed: Sequence[str], share: float
) -> list[str]:
    """Return the names, at times with some of the `fixed` ones among them."""
    seen = list(names)
    for name in fixed:
        if rng.random() < share:
            seen.insert(rng.randint(0, len(seen)), name)
    return seen


def _task(
    rng: random.Random, kind: str, text: str, fixed: Sequence[str], names: Sequence[str], body: str
) -> Task:
    """Return a task about `names` that are seen by a look or listed by the scene.

    The `fixed` names are the task's own: its furniture and containers.
    """
    objects = (*fixed, *names)
    if names and rng.random() < LISTED:
        scene = _mixed(rng, names, fixed, 0.25)
        return Task(kind, text, body, objects, (), tuple(scene), True)
    scene = [name for name in fixed if rng.random() < 0.4]
    plan = f"look();{outside(_mixed(rng, names, fixed, 0.12))}{body}"
    return Task(kind, text, plan, objects, (), tuple(scene), True)


def clean(rng: random.Random) -> Task:
    """Put everything that is seen into a container."""
    surface, box = rng.choice(SURFACES), draw_name(rng, BOXES)
    names = draw_names(rng, rng.choice((0, 1, 2, 2, 3, 3, 4)), ITEMS)
    text = rng.choice(CLEAN).format(s=surface, c=box)
    body = "".join(carry(name, box) for name in names) + "->True;"
    return _task(rng, "A", text, (surface, box), names, body)


def sort(rng: random.Random) -> Task:
    """Put things of two kinds into two containers and leave other things alone."""
    one, two = ("fruit", "vegetables") if rng.random() < 0.3 else rng.sample(tuple(KINDS), 2)
    boxes = dict(zip((one, two), draw_boxes(rng), strict=True))
    names: list[str] = []
    body = ""
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
        kind = rng.choice((one, two)) if rng.random() < 0.92 else rng.choice(tuple(KINDS))
        name = draw_name(rng, KINDS[kind], 0.6 if len(KINDS[kind]) == 1 else 0.2)
        if name not in names:
            names.append(name)
            body += carry(name, boxes[kind]) if kind in boxes else ""
    text = rng.choice(SORT).format(k=one, l=two, c=boxes[one], d=boxes[two])
    fixed = (boxes[one], boxes[two])
    task = _task(rng, "A", text, fixed, names, body + "->True;")
    return replace(task, objects=(one, two, *task.objects))


def question(rng: random.Random) -> Task:
    """Name what is on the table, or say whether one thing is there."""
    surface = rng.choice(SURFACES)
    names = draw_names(rng, rng.choice((0, 1, 2, 2, 3, 3, 4)), (*ITEMS, *BOXES))
    if rng.random() < 0.6:
        body = f"say('{join_words(names) if names else 'Nothing'}');->True;"
        return _question(rng, rng.choice(NAME_ALL).format(s=surface), (surface,), names, body)
    there = bool(names) and rng.random() < 0.5
    thing = rng.choice(names) if there else draw_names(rng, 1, (*ITEMS, *BOXES), names)[0]
    text = rng.choice(IS_THERE).format(x=thing, a=with_article(thing), s=surface)
    body = "say('Yes');->True;" if there else "say('No');->False;"
    return _question(rng, text, (surface, noun_of(thing)), names, body)


def _question(
    rng: random.Random, text: str, asked: Sequence[str], names: Sequence[str], body: str
) -> Task:
    """Return a question; its answer never names the furniture."""
    task = _task(rng, "Q", text, asked[:1], names, body)
    return replace(task, objects=(*asked, *names))
