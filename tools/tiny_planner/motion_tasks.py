"""Task families about motion: move, patrol, avoid, recover."""

from __future__ import annotations

import random

from tools.tiny_planner.words import (
    ANGLES,
    DISTANCES,
    HEIGHTS,
    MOVERS,
    REPEATS,
    SECONDS,
    SHORT,
    THINGS,
    Task,
    draw_name,
    join_words,
    with_article,
)

STEPS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "mf": (DISTANCES, ("go forward {} cm", "move forward {} cm", "fly forward {} cm",
                       "go ahead {} cm")),
    "mb": (DISTANCES, ("go back {} cm", "move back {} cm", "fly backward {} cm")),
    "ml": (DISTANCES, ("go left {} cm", "move left {} cm", "slide left {} cm")),
    "mr": (DISTANCES, ("go right {} cm", "move right {} cm", "slide right {} cm")),
    "mu": (HEIGHTS, ("go up {} cm", "move up {} cm", "rise {} cm", "climb {} cm")),
    "md": (HEIGHTS, ("go down {} cm", "move down {} cm", "descend {} cm")),
    "tc": (ANGLES, ("turn right {} degrees", "rotate right {} degrees",
                    "turn clockwise {} degrees")),
    "tu": (ANGLES, ("turn left {} degrees", "rotate left {} degrees",
                    "turn counterclockwise {} degrees")),
    "d": (SECONDS, ("wait {} seconds", "hover for {} seconds", "pause {} seconds")),
}  # fmt: skip
FIXED_STEPS = {
    "tp();": ("take a picture", "take a photo", "snap a picture"),
    "l('Hello');": ("say hello", "greet the people"),
    "l('Done');": ("say that you are done", "tell me when you are done"),
}
SHAPES = {"triangle": (3, 120), "square": (4, 90), "hexagon": (6, 60), "octagon": (8, 45)}
FIRST = ("", "", "", "Please ", "Now ", "Could you ")


def _numbered_step(rng: random.Random) -> tuple[str, str, int]:
    """Return words, statement and number of a step."""
    skill = rng.choice(tuple(STEPS))
    numbers, forms = STEPS[skill]
    number = rng.choice(numbers)
    return rng.choice(forms).format(number), f"{skill}({number});", number


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def move(rng: random.Random) -> Task:
    """One to five steps in order, at least one with a number."""
    words: list[str] = []
    statements: list[str] = []
    numbers: list[int] = []
    for index in range(rng.choice((1, 2, 3, 3, 4, 5))):
        if index and rng.random() < 0.25:
            statement = rng.choice([s for s in FIXED_STEPS if s not in statements[-1:]])
            words.append(rng.choice(FIXED_STEPS[statement]))
        else:
            text, statement, number = _numbered_step(rng)
            words.append(text)
            numbers.append(number)
        statements.append(statement)
    last = rng.choice((" and ", ", then ", " and then "))
    text = _sentence(rng.choice(FIRST) + join_words(words, last))
    return Task("A", text, "".join(statements) + "->True;", numbers=tuple(numbers))


def patrol(rng: random.Random) -> Task:
    """Repeated motion: polygons, lines, lifts and turns."""
    side, times = rng.choice(DISTANCES), rng.choice(REPEATS)
    before, statement = "", ""
    numbers: tuple[int, ...] = ()
    if rng.random() < 0.3:
        height = rng.choice(HEIGHTS)
        before = rng.choice(("Rise {} cm first. ", "Go up {} cm. ")).format(height)
        statement, numbers = f"mu({height});", (height,)
    form = rng.choice(("shape", "shape", "shape", "line", "line", "lift", "turns"))
    if form == "shape":
        text, body, name = _shape(rng, side)
        numbers = (*numbers, side)
    elif form == "line":
        text = rng.choice((
            "Go back and forth {k} times over {n} cm.", "Patrol a line of {n} cm {k} times.",
            "Fly {n} cm forward and return, {k} times.", "Guard the hall: {k} rounds of {n} cm.",
        )).format(n=side, k=times)  # fmt: skip
        body, name = f"{times}{{mf({side});tc(180);mf({side});tc(180);}};", "line"
        numbers = (*numbers, side, times)
    elif form == "lift":
        height, wait = rng.choice(HEIGHTS), rng.choice(SECONDS)
        text = rng.choice((
            "Go up {n} cm, wait {s} seconds and come down, {k} times.",
            "{k} times: rise {n} cm, hover for {s} seconds and descend again.",
        )).format(n=height, s=wait, k=times)  # fmt: skip
        body, name = f"{times}{{mu({height});d({wait});md({height});}};", "lift"
        numbers = (*numbers, height, wait, times)
    else:
        angle = rng.choice((15, 30, 45, 60, 90, 120))
        text = rng.choice((
            "Turn right {a} degrees and take a picture, {k} times.",
            "Take {k} pictures, turning right {a} degrees before each.",
        )).format(a=angle, k=times)  # fmt: skip
        body, name = f"{times}{{tc({angle});tp();}};", "turns"
        numbers = (*numbers, angle, times)
    return Task("A", before + text, f"{statement}{body}->True;", (name,), numbers)


def _shape(rng: random.Random, side: int) -> tuple[str, str, str]:
    """Return text, loop and name of a polygon flight."""
    name = rng.choice(tuple(SHAPES))
    times, angle = SHAPES[name]
    text = rng.choice((
        "Fly {} with sides of {} cm.", "Fly in {}, each side {} cm.",
        "Make {} with {} cm edges.", "Patrol {} of {} cm.", "Draw {} in the air, {} cm a side.",
    )).format(with_article(name), side)  # fmt: skip
    turn, extra, skill = rng.choice((
        ("", "", "tc"), ("", "", "tc"), (" Turn left.", "", "tu"), (" Turn right.", "", "tc"),
        (" Take a picture at each corner.", "tp();", "tc"),
        (" Wait 2 seconds at each corner.", "d(2);", "tc"),
    ))  # fmt: skip
    return text + turn, f"{times}{{mf({side});{extra}{skill}({angle});}};", name


def avoid(rng: random.Random) -> Task:
    """A short first move away from what comes; the text says from where and how far."""
    mover = draw_name(rng, MOVERS)
    return (_failed_plan if rng.random() < 0.4 else _warning)(rng, mover)


# where it comes from: the move away, then a second move
AWAY = {
    "from the left": ("mr", "mu(50);"),
    "from the right": ("ml", "mu(50);"),
    "from behind": ("mf", "mu(50);"),
    "from above": ("md", "mb(50);"),
    "from below": ("mu", "mb(50);"),
}


def _warning(rng: random.Random, mover: str) -> Task:
    a_mover, where = with_article(mover), ""
    numbers: tuple[int, ...]
    if rng.random() < 0.35:
        number = rng.choice(SHORT)
        text = rng.choice((
            "{A} is {n} cm ahead!", "Watch out, {a} is {n} cm in front of you!",
            "Careful, {a} ahead at {n} cm!", "Stop! {A} is only {n} cm ahead!",
        ))  # fmt: skip
        plan, numbers = f"mu(100);mb({number});->True;", (number,)
    else:
        where = rng.choice(tuple(AWAY))
        number = rng.choice(SHORT)
        numbers = (number,)
        if rng.random() < 0.4:
            number, numbers = 100, ()
            text = rng.choice(("{A} comes {w}!", "Watch out, {a} is coming {w}!", "{A} {w}!",
                               "Careful, {a} is approaching {w}!"))  # fmt: skip
        else:
            text = rng.choice(("{A} comes {w}, move {n} cm!", "{A} is coming {w}, dodge {n} cm!",
                               "Watch out, {a} {w}, get {n} cm away!"))  # fmt: skip
        skill, second = AWAY[where]
        plan = f"{skill}({number});{second}->True;"
    big = a_mover[0].upper() + a_mover[1:]
    text = text.format(a=a_mover, A=big, n=number, w=where)
    return Task("E", text, plan, (mover,), numbers, (mover,))


def _failed_plan(rng: random.Random, mover: str) -> Task:
    """A move was interrupted half way: get out of the way, then do the rest."""
    skill = rng.choice(("mf", "mb", "ml", "mr"))
    half = rng.choice([n for n in DISTANCES if n <= 150 or n == 200])
    reason, first = rng.choice((
        ("is passing by", "d(3);"), ("is crossing my way", "d(3);"),
        ("is approaching me", "mr(50);" if skill in ("mf", "mb") else "mu(50);"),
        ("is coming closer", "mr(50);" if skill in ("mf", "mb") else "mu(50);"),
        ("is trying to catch me", "mu(100);"), ("is chasing me", "mu(100);"),
    ))  # fmt: skip
    text = rng.choice((
        "You provided me with plan {p}, but I failed because {a} {r}. Execution history: {h}",
        "Your plan was {p}, but it failed because {a} {r}. Execution history: {h}",
        "Plan {p} stopped because {a} {r}. Execution history: {h}",
    ))  # fmt: skip
    plan, history = f"{skill}({2 * half})", f"{skill}({half})"
    text = text.format(p=plan, a=with_article(mover), r=reason, h=history)
    plan = f"{first}{skill}({half});->True;"
    return Task("E", text, plan, (mover,), (2 * half, half), (mover,))


def recover(rng: random.Random) -> Task:
    """A plan failed in the middle: back off and try again."""
    _, done, number = _numbered_step(rng)
    thing = draw_name(rng, THINGS)
    objects: tuple[str, ...] = ()
    form = rng.choice(("go", "go", "search", "blocked"))
    if form == "blocked":
        skill = rng.choice(("mf", "ml", "mr"))
        length = rng.choice(DISTANCES)
        goal = rng.choice(STEPS[skill][1]).format(length)
        failed, plan = f"{skill}({length})", f"mb(30);mu(50);{skill}({length});->True;"
        numbers: tuple[int, ...] = (number, length)
    else:
        goal, extra = rng.choice((
            (f"find the {thing}", ""), (f"go to the {thing}", ""),
            (f"find the {thing} and take a picture", "tp();"),
        ))  # fmt: skip
        failed, first = {"go": (f"g('{thing}')", "mb(30);"),
                         "search": (f"s('{thing}')", "mf(100);")}[form]  # fmt: skip
        plan = f"{first}?s('{thing}'){{g('{thing}');{extra}->True;}};->False;"
        objects, numbers = (thing,), (number,)
    text = rng.choice((
        "Done: {d}. Failed: {f}. Task: {g}.", "I did {d}, but {f} failed. The task is to {t}.",
        "{f} failed after {d}. Try again to {t}.",
    )).format(d=done[:-1], f=failed, g=goal[0].upper() + goal[1:], t=goal)  # fmt: skip
    return Task("E", text, plan, objects, numbers)
