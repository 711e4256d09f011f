"""Steps of a plan in plain words: what a sketch of it says, derived from the plan itself."""

from __future__ import annotations

import re

_STATEMENT = re.compile(r"(\w+)\((?:'([^']*)'|(\d*))\);")
_SEARCH = re.compile(r"\?s\('([^']*)'\)\{(.*)->True;\};->False;\Z")
_WORDS = {
    "mf": "move forward {} cm", "mb": "move back {} cm", "ml": "move left {} cm",
    "mr": "move right {} cm", "mu": "go up {} cm", "md": "go down {} cm",
    "tc": "turn right {} degrees", "tu": "turn left {} degrees", "d": "wait {} seconds",
    "tp": "take a picture", "g": "go to the {}", "open": "open the gripper",
    "close": "close the gripper", "move_to": "move the hand to the {}",
}  # fmt: skip
_SAID = {"Hello": "say hello", "Done": "say that you are done"}


def steps_of(plan: str, seen: bool = False) -> list[str] | None:
    """Return the steps of a plan that runs straight on, or None if it does not.

    Args:
        plan: a right plan of the corpus, without tool output.
        seen: the scene lists what the plan first goes to: a step says so, as another one says that
            it is searched for.
    """
    steps: list[str] = []
    search = _SEARCH.match(plan)
    if search:
        steps.append(f"search for the {search[1]}")
    body = search[2] if search else plan.removesuffix("->True;")
    calls = _STATEMENT.findall(body)
    if (not search and not plan.endswith("->True;")) or _STATEMENT.sub("", body):
        return None
    if seen and not search and calls and calls[0][0] == "g":
        steps.append(f"find the {calls[0][1]} in the scene")
    held = ""
    for skill, text, number in calls:
        if skill == "pick":
            held = text
        elif skill == "place":
            steps.append(f"put the {held} on the {text}")
        elif skill in ("l", "say"):
            if text not in _SAID:
                return None
            steps.append(_SAID[text])
        elif skill in _WORDS:
            steps.append(_WORDS[skill].format(text or number))
        else:
            return None
    return [step.replace("wait 1 seconds", "wait 1 second") for step in steps]
