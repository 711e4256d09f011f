"""The grammar of a skill set's plans, for engines that let a model say nothing else.

Every text of it is a plan that `minispec.check_plan` takes. The other way round it is narrower:
there are at most `MOST_BLOCKS` blocks and `MOST_LOOPS` loops inside each other, at most one space
or line break between two words, and no escapes in texts but in choices that need them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from timely_llm.skills.choices import literal, quoted_text
from timely_llm.skills.minispec.builder import MAX_DEPTH, MAX_REPETITIONS
from timely_llm.skills.minispec.checker import MAX_COUNT, MAX_NUMBER
from timely_llm.skills.skill import Argument, Skill
from timely_llm.skills.skill_set import SkillSet

MOST_BLOCKS = min(6, MAX_DEPTH)
MOST_LOOPS = 2
MOST_ROUNDS = min(MAX_COUNT, math.isqrt(MAX_REPETITIONS))
MOST_TERMS = 4

_DECIMALS = 2
_MOST_DECIMALS = 5
_WHOLE = 10 ** (MAX_NUMBER - 1) - 1
_BROKEN = 10 ** (MAX_NUMBER - 2 - _MOST_DECIMALS) - 1
_UNBOUNDED = 10**6
_TEXT = 40

# How a call in a condition can be compared, by what the skill returns.
_COMPARED = {
    "boolean": "(EQUAL TRUTH)?",
    "number": "(EQUAL | BELOW) NUMBER",
    "text": "EQUAL TEXT",
}


def summary(skill_set: SkillSet) -> str:
    """Return the grammar of a skill set's plans for people, as the stop checker reads them."""
    calls = [
        f"{name}({', '.join(map(_described, skill.arguments))})"
        + (f" -> {skill.returns}" if skill.returns != "nothing" else "")
        + (", blocking: only as a statement, in no loop" if skill.blocking else "")
        for name, skill in skill_set.skills.items()
    ]
    return "\n".join(
        (
            "plan      = { statement }",
            'statement = call ";" | "?" condition "{" plan "}" | count "{" plan "}"',
            '          | "->" literal ";"',
            'condition = term { ("&" | "|") term }, "&" before "|"',
            'term      = call [ ("==" | "!=" | "<" | ">" | "<=" | ">=") literal ]',
            "call      = " + "\n          | ".join(calls),
        )
    )


def _described(argument: Argument) -> str:
    if argument.choices:
        return f"{argument.name}: {argument.allowed()}"
    if argument.type == "text":
        return f"{argument.name}: text of at most {argument.maximum_length} characters"
    return f"{argument.name}: {argument.type}, {argument.allowed()}"


def plan_grammar(skill_set: SkillSet) -> str:
    """Return the grammar of a skill set's plans, in Lark's notation.

    A blocking skill is called by a statement outside of loops, never in a condition: the rest
    depends on its value, which the server appends as tool output. The grammar goes on after the
    call as if there were no tool output. A skill without any possible argument is left out.
    """
    calls = {name: call for name, skill in skill_set.skills.items() if (call := _call(name, skill))}
    skills = {name: skill_set.skills[name] for name in calls}
    acts = [call for name, call in calls.items() if not skills[name].blocking]
    asks = [call for name, call in calls.items() if skills[name].blocking]
    terms = [
        f"{call} {_COMPARED[skills[name].returns]}"
        for name, call in calls.items()
        if skills[name].returns in _COMPARED and not skills[name].blocking
    ]
    rules = ["start: body_0_0"]
    for blocks in range(MOST_BLOCKS + 1):
        for loops in range(min(MOST_LOOPS, blocks) + 1):
            rules += _level(blocks, loops, bool(acts), bool(asks), bool(terms))
    rules += _rule("act", acts) + _rule("ask", asks) + _rule("term", terms)
    more = ""
    for _ in range(MOST_TERMS - 1):
        more = f" (JOIN term{more})?"
    rules += [f"condition: term{more}"] if terms else []
    return "\n".join([*rules, *_words(min(_longest_text(skill_set), _TEXT))]) + "\n"


def _level(blocks: int, loops: int, acts: bool, asks: bool, terms: bool) -> list[str]:
    """Return the rules of statements inside `blocks` nested blocks, `loops` of them loops."""
    here, steps = f"{blocks}_{loops}", []
    if acts:
        steps.append('GAP? act ";"')
    if asks and not loops:
        steps.append('GAP? ask ";"')
    if blocks < MOST_BLOCKS and terms:
        steps.append(f'GAP? "?" condition THEN body_{blocks + 1}_{loops} close')
    if blocks < MOST_BLOCKS and loops < MOST_LOOPS:
        steps.append(f'GAP? ROUNDS "{{" body_{blocks + 1}_{loops + 1} close')
    if not steps:
        return [f"body_{here}: back"]
    return [f"body_{here}: step_{here}+ | step_{here}* back", *_rule(f"step_{here}", steps)]


def _rule(name: str, alternatives: Iterable[str]) -> list[str]:
    written = "\n    | ".join(alternatives)
    return [f"{name}: {written}"] if written else []


def _words(longest: int) -> list[str]:
    """Return the rules and terminals that all skill sets share."""
    number = _number(Fraction(-_UNBOUNDED), Fraction(_UNBOUNDED), _DECIMALS)
    return [
        'close: GAP? "}" ";"?',
        'back: GAP? "->" (TRUTH | NUMBER | TEXT) ";"',
        r"GAP: /[ \n]/",
        "COMMA: /, ?/",
        "JOIN: / ?[&|] ?/",
        r"THEN: / ?(-> ?)?\{/",
        "EQUAL: / ?[=!]= ?/",
        "BELOW: / ?[<>]=? ?/",
        "TRUTH: /True|False|true|false/",
        f"ROUNDS: /{_either(_whole(1, MOST_ROUNDS))}/",
        f"NUMBER: /{number}/",
        f"TEXT: /{_text(longest)}/",
    ]


def _longest_text(skill_set: SkillSet) -> int:
    """Return the characters of the longest text that the checker reads."""
    arguments = (a for skill in skill_set.skills.values() for a in skill.arguments)
    return max((a.longest for a in arguments if a.type == "text"), default=_TEXT)


def _call(name: str, skill: Skill) -> str | None:
    """Return what a call looks like; None if there is no value that an argument can have."""
    patterns = [_argument(argument) for argument in skill.arguments]
    if not all(patterns):
        return None
    return f'"{name}(" {" COMMA ".join(f"/{pattern}/" for pattern in patterns)} ")"'


def _argument(argument: Argument) -> str:
    """Return the pattern of an argument's values; empty if there are none."""
    if argument.choices:
        return _either([_escaped(text) for text in _written(argument)])
    if argument.type == "text":
        return _text(argument.maximum_length)
    low, high = argument.minimum, argument.maximum
    least = -max(_UNBOUNDED, 2 * abs(high or 0)) if low is None else low
    most = max(_UNBOUNDED, 2 * abs(low or 0)) if high is None else high
    bounds = [Fraction(repr(float(bound))) for bound in (least, most)]
    decimals = 0
    if argument.type == "number":
        needed = max(_decimals(bound) for bound in bounds)
        decimals = min(max(needed, _DECIMALS), _MOST_DECIMALS)
    return _number(bounds[0], bounds[1], decimals)


def _written(argument: Argument) -> list[str]:
    """Return the choices of an argument in each way in which a plan may write them."""
    if argument.type == "text":
        texts = [choice for choice in argument.choices if isinstance(choice, str)]
        return [quoted_text(text, quote) for text in texts for quote in "'\""]
    numbers = [literal(choice) for choice in argument.choices]
    if argument.type == "number":
        whole = [number for number in numbers if "." not in number]
        numbers += [number.removesuffix(".0") for number in numbers if number.endswith(".0")]
        numbers += [f"{number}.0" for number in whole if len(number) + 2 <= MAX_NUMBER]
    return list(dict.fromkeys(numbers))


def _escaped(text: str) -> str:
    """Return the pattern of a text, as all readers of Lark's notation understand it."""
    return "".join(
        char if char.isalnum() or not char.isascii() else f"\\x{ord(char):02x}" for char in text
    )


def _text(longest: int) -> str:
    char = r"[^'\"\\\x00-\x1f\x7f-\x9f]"
    return f"'{char}{{1,{longest}}}'|\"{char}{{1,{longest}}}\""


def _decimals(value: Fraction) -> int:
    """Return how many decimals a value is written with, at most one too many to be used."""
    places = range(_MOST_DECIMALS + 1)
    return next((n for n in places if (value * 10**n).denominator == 1), _MOST_DECIMALS)


def _number(low: Fraction, high: Fraction, decimals: int) -> str:
    """Return the pattern of the numbers from low to high with at most `decimals` decimals."""
    negative = [f"-{pattern}" for pattern in _positive(max(-high, Fraction(0)), -low, decimals)]
    return _either(negative + _positive(max(low, Fraction(0)), high, decimals))


def _positive(low: Fraction, high: Fraction, decimals: int) -> list[str]:
    """Return the patterns of the numbers from low, which is not negative, to high."""
    found = _whole(math.ceil(low), min(math.floor(high), _WHOLE))
    for places in range(1, decimals + 1):
        size = 10**places
        first, last = math.ceil(low * size), min(math.floor(high * size), _BROKEN * size)
        while first <= last:
            # The decimals after one whole number, or after all numbers with any decimals.
            whole, rest = divmod(first, size)
            until = min(last, (whole + 1) * size - 1)
            full = last // size - (last % size < size - 1)
            if rest == 0 and whole <= full:
                found.append(rf"{_either(_whole(whole, full))}\.[0-9]{{{places}}}")
                first = (full + 1) * size
            else:
                ends = _digits(f"{rest:0{places}}", f"{until % size:0{places}}")
                found.append(rf"{whole}\.{ends}")
                first = until + 1
    return found


def _whole(low: int, high: int) -> list[str]:
    """Return the patterns of the whole numbers from low, which is not negative, to high."""
    found = []
    while low <= high:
        top = min(high, 10 ** len(str(low)) - 1)
        found.append(_digits(str(low), str(top)))
        low = top + 1
    return found


def _digits(low: str, high: str) -> str:
    """Return the pattern of the numbers from low to high, all written with as many digits."""
    if not low:
        return ""
    if low[0] == high[0]:
        return low[0] + _digits(low[1:], high[1:])
    rest, first, last = len(low) - 1, int(low[0]), int(high[0])
    found = []
    if low[1:] != "0" * rest:
        found.append(low[0] + _digits(low[1:], "9" * rest))
        first += 1
    end = []
    if high[1:] != "9" * rest:
        end.append(high[0] + _digits("0" * rest, high[1:]))
        last -= 1
    if first <= last:
        found.append(f"[{first}-{last}]" + (f"[0-9]{{{rest}}}" if rest else ""))
    return _either(found + end)


def _either(patterns: list[str]) -> str:
    return f"(?:{'|'.join(patterns)})" if len(patterns) > 1 else "".join(patterns)
