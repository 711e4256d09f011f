"""A strict check of MiniSpec plans against a skill set."""

from __future__ import annotations

import re

from timely_llm.skills.skill_set import SkillSet

TOKEN = re.compile(r"(\d+)|([a-z_]+)(?=\()|('[^'{};]*')|(->True|->False|[?&|{}();,])")


def plan_problem(plan: str, skills: SkillSet) -> str | None:
    """Return what is wrong with a plan's grammar or arguments, or None if it is fine."""
    try:
        _Parser(plan, skills).plan()
    except ValueError as error:
        return str(error)
    return None


class _Parser:
    """plan = statement* ("->True" | "->False") ";".

    statement = (call | "?" call (("&" | "|") call)* block | number block | "->True" | "->False")
    ";" and block = "{" statement* "}".
    """

    def __init__(self, plan: str, skills: SkillSet) -> None:
        self._skills = skills
        self._tokens: list[str] = []
        self._next = 0
        at = 0
        while at < len(plan):
            match = TOKEN.match(plan, at)
            if not match:
                raise ValueError(f"unexpected text {plan[at : at + 10]!r}")
            self._tokens.append(match[0])
            at = match.end()
        self._tokens.append("end")

    def plan(self) -> None:
        last = ""
        while self._tokens[self._next] != "end":
            last = self._statement()
        if not last.startswith("->"):
            raise ValueError("the plan does not end with a return")

    def _statement(self) -> str:
        first = self._tokens[self._next]
        if first.startswith("->"):
            self._next += 1
        elif first == "?":
            self._next += 1
            self._call(condition=True)
            while self._tokens[self._next] in "&|":
                self._next += 1
                self._call(condition=True)
            self._block()
        elif first.isdigit():
            self._next += 1
            self._block()
        else:
            self._call()
        self._take(";")
        return first

    def _block(self) -> None:
        self._take("{")
        while self._tokens[self._next] != "}":
            self._statement()
        self._take("}")

    def _call(self, condition: bool = False) -> None:
        name = self._tokens[self._next]
        skill = self._skills.skills.get(name)
        if skill is None:
            raise ValueError(f"unknown skill {name!r}")
        if condition and skill.returns != "boolean":
            raise ValueError(f"{name} is not a condition")
        self._next += 1
        self._take("(")
        for index, argument in enumerate(skill.arguments):
            if index:
                self._take(",")
            token = self._tokens[self._next]
            problem = argument.problem(int(token) if token.isdigit() else token.strip("'"))
            if problem:
                raise ValueError(problem)
            self._next += 1
        self._take(")")

    def _take(self, token: str) -> None:
        if self._tokens[self._next] != token:
            raise ValueError(f"expected {token!r}, found {self._tokens[self._next]!r}")
        self._next += 1
