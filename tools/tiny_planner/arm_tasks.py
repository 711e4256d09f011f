"""Task families of the arm without a look: arm_move, arm_stack, arm_gripper, arm_urgent."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tools.tiny_planner.arm_words import BOXES, ITEMS, SPOTS, SURFACES, draw_name, draw_names
from tools.tiny_planner.words import ADJECTIVES, MOVERS, Task, join_words, noun_of, with_article

MOVE = (
    "Put the {x} {w} the {y}.", "Place the {x} {w} the {y}.", "Please put the {x} {w} the {y}.",
    "Take the {x} and put it {w} the {y}.", "Pick up the {x} and place it {w} the {y}.",
    "Move the {x} to the {y}.", "Bring the {x} to the {y}.", "The {x} belongs {w} the {y}.",
)  # fmt: skip
STACK = (
    "Stack {}.", "Stack {}, from bottom to top.", "Build a tower: {}.", "Pile up {}.",
    "Build a tower of {}, the first at the bottom.", "Stack {} in this order.",
)  # fmt: skip


def carry(name: str, target: str) -> str:
    """Return the statements that put an object onto or into a target."""
    return f"pick('{name}');place('{target}');"


def preposition(target: str) -> str:
    """Return how something is put there."""
    return "into" if noun_of(target) in BOXES else "on"


def _scene(rng: random.Random, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the scene lists: some, all or none."""
    return tuple(name for name in names if rng.random() < 0.6)


def move(rng: random.Random) -> Task:
    """Put one or two objects somewhere."""
    names = draw_names(rng, rng.choice((1, 1, 2)), ITEMS)
    targets = draw_names(rng, rng.choice((1, len(names))), (*SPOTS, "book", "towel"), names)
    one, two = names[0], names[-1]
    if len(names) == 1:
        text = rng.choice(MOVE).format(x=one, y=targets[0], w=preposition(targets[0]))
    elif len(targets) == 1:
        text = rng.choice((
            "Put the {x} and the {z} {w} the {y}.", "Place the {x} and the {z} {w} the {y}.",
            "Take the {x} and the {z} and put both {w} the {y}.",
        )).format(x=one, z=two, y=targets[0], w=preposition(targets[0]))  # fmt: skip
    else:
        text = rng.choice((
            "Put the {x} {w} the {y} and the {z} {v} the {u}.",
            "Put the {x} {w} the {y}, then put the {z} {v} the {u}.",
            "Move the {x} to the {y} and the {z} to the {u}.",
        )).format(
            x=one, z=two, y=targets[0], u=targets[1],
            w=preposition(targets[0]), v=preposition(targets[1]),
        )  # fmt: skip
    if len(names) > len(targets):
        targets *= 2
    plan = "".join(map(carry, names, targets)) + "->True;"
    return Task("A", text, plan, (*names, *targets), (), _scene(rng, (*names, *targets[:1])))


def stack(rng: random.Random) -> Task:
    """Stack two to four objects; the first one named is at the bottom."""
    count = rng.choice((2, 3, 3, 4))
    if rng.random() < 0.5:
        noun = rng.choice((*ITEMS, *BOXES, "box", "book", "cup", "ball"))
        names = [f"{adjective} {noun}" for adjective in rng.sample(ADJECTIVES, count)]
    else:
        names = draw_names(rng, count, (*ITEMS, *BOXES, "plate"))
    tower = join_words([f"the {n}" for n in names], rng.choice((" and ", ", then ", " and then ")))
    plan = "".join(map(carry, names[1:], names)) + "->True;"
    return Task("A", rng.choice(STACK).format(tower), plan, tuple(names), (), _scene(rng, names))


STEPS = {
    "open();": ("open the gripper", "open the hand", "let go"),
    "close();": ("close the gripper", "close the hand"),
    "say('Hello');": ("say hello",),
    "say('Done');": ("say that you are done", "say done"),
}
HANDS = ("move the hand over the {}", "move the hand to the {}", "hold the hand over the {}")


def gripper(rng: random.Random) -> Task:
    """One to four steps of the hand, in order."""
    words: list[str] = []
    statements: list[str] = []
    places: list[str] = []
    for _ in range(rng.choice((1, 2, 3, 4))):
        if rng.random() < 0.4:
            place = draw_name(rng, (*SPOTS, *ITEMS))
            step, statement = rng.choice(HANDS).format(place), f"move_to('{place}');"
        else:
            place = ""
            statement = rng.choice([s for s in STEPS if s not in statements[-1:]])
            step = rng.choice(STEPS[statement])
        words.append(step)
        statements.append(statement)
        places.append(place or statement.split("(")[0])
    text = join_words(words, rng.choice((" and ", ", then ", " and then ")))
    text = rng.choice(("", "", "please ")) + text
    plan = "".join(statements) + "->True;"
    return Task("A", text[0].upper() + text[1:] + ".", plan, tuple(places))


def urgent(rng: random.Random) -> Task:
    """An emergency: one short move first."""
    name, place = draw_name(rng, ITEMS), draw_name(rng, SURFACES)
    mover = draw_name(rng, MOVERS, 0.2)
    text, plan, objects = rng.choice((
        ("{A} is too close to the arm!", "open();say('Careful');", (mover,)),
        ("Careful, {a} reaches for the hand!", "open();say('Careful');", (mover,)),
        ("Let go of the {x}!", "open();", (name,)),
        ("Drop the {x}, quick!", "open();", (name,)),
        ("The {x} is about to fall, catch it!", "pick('{x}');", (name,)),
        ("The {x} slips, hold it!", "close();", (name,)),
        ("The {x} rolls off the {p}, catch it!", "pick('{x}');place('{p}');", (name, place)),
        ("Move the hand away, over to the {p}!", "move_to('{p}');", (place,)),
    ))  # fmt: skip
    a_mover = with_article(mover)
    words = {"x": name, "p": place, "a": a_mover, "A": a_mover[0].upper() + a_mover[1:]}
    scene = _scene(rng, objects)
    return Task("E", text.format(**words), plan.format(**words) + "->True;", objects, (), scene)
