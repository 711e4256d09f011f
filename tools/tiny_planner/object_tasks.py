"""Task families about objects: find, check, look, question, scan, visit."""

from __future__ import annotations

import random

from tools.tiny_planner.words import (
    HEIGHTS,
    NOUNS,
    PLACES,
    SECONDS,
    SHORT,
    THINGS,
    Task,
    draw_name,
    draw_names,
    is_plural,
    join_words,
    with_article,
)

FIND = (
    "Find the {x} and go to it.", "Go to the {x}.", "Fly to the {x}.", "Find the {x}.",
    "Please look for the {x} and approach it.", "Could you find the {x}? If so, go to it.",
    "Search for the {x} and fly there.", "Can you get close to the {x}?",
    "Locate the {x} and move over to it.", "I need the {x}. Find it and go there.",
)  # fmt: skip
FIND_AT = (
    "Can you find the {x} on the {y}?", "The {x} should be on the {y}. Find it and go there.",
    "Go to the {x} near the {y}.", "Look for the {x} on the {y} and approach it.",
    "Can you find {a} on the {y}?",
)  # fmt: skip


def find(rng: random.Random) -> Task:
    """Go to an object, searching for it first when it is not in view."""
    thing = draw_name(rng, THINGS if rng.random() < 0.8 else NOUNS)
    text, objects = rng.choice(FIND), [thing]
    scene: list[str] = []
    numbers: list[int] = []
    if rng.random() < 0.25:
        text = rng.choice(FIND_AT)
        objects += draw_names(rng, 1, PLACES, objects)
        scene += objects[1:]
    text = text.format(x=thing, a=with_article(thing), y=objects[-1])
    seen = rng.random() < 0.5
    statements = [f"g('{thing}');"]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        words, statement, number = _afterwards(rng)
        if statement not in statements:
            text += words
            statements.append(statement)
            numbers += number
    plan = "".join(statements) + "->True;"
    if not seen:
        plan = f"?s('{thing}'){{{plan}}};->False;"
    scene += [thing] * seen
    return Task("A", text, plan, tuple(objects), tuple(numbers), tuple(scene))


def _afterwards(rng: random.Random) -> tuple[str, str, list[int]]:
    """Return words, statement and numbers of what to do at the object."""
    seconds, height = rng.choice(SECONDS), rng.choice(HEIGHTS)
    return rng.choice((
        (" Take a picture of it.", "tp();", []), (" Then take a photo.", "tp();", []),
        (" Say hello when you arrive.", "l('Hello');", []),
        (f" Wait {seconds} seconds there.", f"d({seconds});", [seconds]),
        (f" Then come back {height} cm.", f"mb({height});", [height]),
        (f" Then rise {height} cm.", f"mu({height});", [height]),
    ))  # fmt: skip


def check(rng: random.Random) -> Task:
    """Are two objects here, both or one of them?"""
    one, two = draw_names(rng, 2, THINGS)
    scene: tuple[str, ...] = ()
    objects: tuple[str, ...] = (one, two)
    word, mark = rng.choice((("and", "&"), ("or", "|")))
    form = rng.choice(("question", "question", "scan", "picture"))
    pair = f"{with_article(one)} {word} {with_article(two)}"
    block, otherwise = "l('Yes');->True;", "l('No');"
    if form == "question":
        place = ""
        if rng.random() < 0.6:
            scene = tuple(draw_names(rng, 1, PLACES))
            objects, place = (one, two, *scene), f" on the {scene[0]}"
        text = rng.choice(("{Be} there {}{}?", "Do you see {}{}?", "Can you see {}{}?",
                           "Tell me if there {be} {}{}."))  # fmt: skip
        be = "are" if is_plural(one) else "is"
        text = text.format(pair, place, be=be, Be=be.capitalize())
        kind, skill = "Q", "iv"
    elif form == "scan":
        text = rng.choice(("Check for {}.", "Look around for {}.", "Search the room for {}.",
                           "Look around and tell me if you find {}.")).format(pair)  # fmt: skip
        kind, skill = "A", "s"
    else:
        text = rng.choice(("If you see {}, take a picture.", "Take a picture if you see {}.",
                           "When you see {}, take a photo.")).format(pair)  # fmt: skip
        kind, skill, block, otherwise = "A", "iv", "tp();->True;", ""
    plan = f"?{skill}('{one}'){mark}{skill}('{two}'){{{block}}};{otherwise}->False;"
    return Task(kind, text, plan, objects, (), scene)


def look(rng: random.Random) -> Task:
    """Look under, over or on top of furniture; without a number move 50 cm."""
    thing, place = draw_name(rng, THINGS), draw_name(rng, PLACES)
    direction, where, skill = rng.choice((
        ("down", "under", "md"), ("down", "below", "md"),
        ("up", "on top of", "mu"), ("up", "over", "mu"),
    ))  # fmt: skip
    number, distance = 50, ""
    numbers: tuple[int, ...] = ()
    if rng.random() < 0.65:
        number = rng.choice(SHORT)
        numbers, distance = (number,), f" {number} cm"
    text, found = rng.choice((
        ("Move {d}{n} and look for the {x} {w} the {y}.", "tp();"),
        ("Look {w} the {y} for the {x}. Move {d}{n} and take a picture of it.", "tp();"),
        ("Move {d}{n} and check {w} the {y}, if you see the {x}, take a picture of it.", "tp();"),
        ("Move {d}{n} and then check {top} the {y}, if you see {a}, take a picture of it.",
         "tp();"),
        ("Move {d}{n} and try to find the {x} {w} the {y}.", "g('{x}');"),
        ("Go {d}{n}, find the {x} {w} the {y} and go to it.", "g('{x}');"),
        ("Go {d}{n} and tell me if the {x} {be} {w} the {y}.", "l('Yes');"),
    ))  # fmt: skip
    text = text.format(
        d=direction, n=distance, w=where, x=thing, a=with_article(thing), y=place,
        be="are" if is_plural(thing) else "is", top="the top of" if skill == "mu" else where,
    )  # fmt: skip
    inner = f"?iv('{thing}'){{{found.format(x=thing)}->True;}};"
    plan = f"g('{place}');{skill}({number});{inner}"
    seen = rng.random() < 0.7
    plan = f"{plan}->False;" if seen else f"?s('{place}'){{{plan}}};->False;"
    return Task("A", text, plan, (thing, place), numbers, (place,) * seen)


def question(rng: random.Random) -> Task:
    """Is one object here, or what is in view?"""
    if rng.random() < 0.35:
        names = draw_names(rng, rng.randint(0, 4), NOUNS)
        text = rng.choice(("What do you see?", "What can you see?", "What is in view?",
                           "Describe the scene.", "Tell me what is in front of you.",
                           "Name all objects that you see."))  # fmt: skip
        answer = join_words(names) if names else "Nothing"
        return Task("Q", text, f"l('{answer}');->True;", tuple(names), (), tuple(names), True)
    thing = draw_name(rng, NOUNS)
    text = rng.choice(("Is the {x} here?", "Can you see the {x}?", "Do you see {a}?",
                       "Is there {a} in the room?", "Is {a} in view?", "Did you find the {x}?",
                       "Tell me if you see {a}."))  # fmt: skip
    plan = f"?iv('{thing}'){{l('Yes');->True;}};l('No');->False;"
    scene = (thing,) * (rng.random() < 0.4)
    return Task("Q", text.format(x=thing, a=with_article(thing)), plan, (thing,), (), scene)


def scan(rng: random.Random) -> Task:
    """Turn in steps until an object is in view."""
    thing = draw_name(rng, NOUNS)
    angle = rng.choice((15, 30, 45, 60, 90, 120))
    side, skill = rng.choice((("", "tc"), (" right", "tc"), (" left", "tu")))
    words, found = rng.choice((("go to it", f"g('{thing}');"), ("fly there", f"g('{thing}');"),
                               ("take a picture", "tp();"),
                               ("go to it and take a picture", f"g('{thing}');tp();"),
                               ("say yes", "l('Yes');")))  # fmt: skip
    text = rng.choice((
        "Turn{s} in steps of {n} degrees until you see the {x}, then {w}.",
        "Scan{s} for the {x} in {n} degree steps, then {w}.",
        "Rotate{s} {n} degrees at a time, look for the {x}, then {w}.",
    )).format(s=side, n=angle, x=thing, w=words)  # fmt: skip
    loop = f"{360 // angle}{{?iv('{thing}'){{{found}->True;}};{skill}({angle});}};"
    return Task("A", text, f"{loop}->False;", (thing,), (angle,))


def visit(rng: random.Random) -> Task:
    """Go to two or three objects in view, one after the other."""
    names = draw_names(rng, rng.choice((2, 2, 3)), (*THINGS, *PLACES))
    words, extra, numbers = rng.choice((
        ("", "", []), (" Take a picture of each.", "tp();", []),
        (" Photograph each of them.", "tp();", []), (" Wait 2 seconds at each.", "d(2);", [2]),
    ))  # fmt: skip
    plan = "".join(f"g('{name}');{extra}" for name in names) + "->True;"
    if rng.random() < 0.3:
        text = rng.choice(("Visit everything that you see.", "Go to all objects in view.",
                           "Inspect every object in the scene."))  # fmt: skip
        return Task("A", text + words, plan, tuple(names), tuple(numbers), tuple(names), True)
    route = join_words([f"the {name}" for name in names], rng.choice((" and ", " and then ")))
    text = rng.choice(("Go to {}.", "Visit {}.", "Fly to {}.", "Inspect {}.")).format(route)
    return Task("A", text + words, plan, tuple(names), tuple(numbers), tuple(names))
