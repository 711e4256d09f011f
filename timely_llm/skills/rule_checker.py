"""Plans in a language that the user's rules describe (Ling et al. 2024, §5).

Their stop checker, and which skills of a skill set its plans can call.
"""

from __future__ import annotations

import regex

from timely_llm.core.errors import PlanError
from timely_llm.core.segment import SkillCall
from timely_llm.core.text import listed
from timely_llm.skills.execution_time import ExecutionTimes, checked_call, parse_arguments
from timely_llm.skills.rules import FEED_S, Budget, Rule, set_end, without_tables
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import Call, Piece

MAX_STATEMENT = 4000
"""Characters of the longest statement."""

SEPARATORS = " \t\r\n\f\v;,"
"""What may stand before a statement, whatever the rules are; it belongs to its piece."""

STRIDE = 64


class RuleChecker:
    """A stop checker for one plan; see `StopChecker`.

    A piece ends as soon as no further text could change the match: at the last character of a rule
    that ends with `;`, and one character later for a rule with an optional end. The longest match
    of several rules counts, and the first of equals. A rule's group `skill` names the called skill,
    its group `arguments` the arguments. A piece of a rule without these groups is passed on as text
    and takes no time. Anchors such as `$` match the end of the text read so far.

    Each reading matches the incomplete statement again, and nothing before it.

    Args:
        skill_set: the rules, the skills that a plan may use, and the bounds of their arguments.
        times: predicts how long calls take; by default as the skill set says.
        budget: seconds that matching may take.
    """

    def __init__(
        self,
        skill_set: SkillSet,
        times: ExecutionTimes | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._skill_set = skill_set
        self._times = times or ExecutionTimes(skill_set)
        self._budget = budget or Budget()
        self._rules = list(skill_set.compiled_rules)
        self._open = self._rules  # rules that more text could match, or match differently
        self._lead = ""
        self._said = ""
        self._cut = 0
        self._cuts = 0
        self._error: PlanError | None = None
        self.done = False
        self.rest = ""

    @property
    def tail(self) -> str:
        """What was read after the last boundary; see `StopChecker.tail`."""
        return self._lead + self._said

    def feed(self, text: str) -> list[Piece]:
        """Read some text and return the pieces that it completes; see `StopChecker.feed`."""
        self._raise_late_error()
        self.rest = ""
        pieces: list[Piece] = []
        unread = text
        self._budget.begin()
        try:
            while unread:
                piece, unread = self._read(unread)
                if piece is not None:
                    pieces.append(piece)
                    if piece.blocking:
                        self.rest = unread[-len(text) :] if unread.strip() else ""
                        break
        except PlanError as error:
            # What was complete before the fault is delivered, however the text was split.
            self._error = PlanError(f"after character {self._cut} of the plan: {error}")
        finally:
            self._budget.end()
        if not pieces:
            self._raise_late_error()
        return pieces

    def finish(self) -> tuple[Piece | None, str]:
        """End the text; see `StopChecker.finish`."""
        self._raise_late_error()
        if not self._said and not self._cuts:
            raise PlanError("the plan is empty")
        if not self._said:
            return None, self._lead
        said = self._said
        self._budget.begin()
        match = self._longest(said)
        self._budget.end()
        if match is None or said[match[1].end() :].strip(SEPARATORS):
            raise PlanError(f"the plan ends in the middle of a statement: {_short(said)}")
        return self._piece(*match), said[match[1].end() :]

    def _raise_late_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _read(self, unread: str) -> tuple[Piece | None, str]:
        """Read up to `STRIDE` characters; return the piece they complete and what is unread."""
        if not self._said:
            words = unread.lstrip(SEPARATORS)
            self._lead += unread[: len(unread) - len(words)]
            unread = words
            if not unread:
                return None, ""
        room = min(STRIDE, MAX_STATEMENT - len(self._said))
        if not room:
            raise PlanError(f"a statement is longer than {MAX_STATEMENT} characters")
        said, unread = self._said + unread[:room], unread[room:]
        still_open = [rule for rule in self._open if rule.may_go_on(said, self._budget)]
        if still_open:
            self._said, self._open = said, still_open
            return None, unread
        end = self._decided_at(said)
        match = self._longest(said[:end])
        if match is None:
            raise PlanError(f"no rule of {self._skill_set.name} matches {_short(said[:end])}")
        return self._piece(*match), said[match[1].end() :] + unread

    def _decided_at(self, said: str) -> int:
        """Return after how many characters no rule was open any more."""
        low, high = len(self._said), len(said)
        while high - low > 1:
            middle = (low + high) // 2
            if any(rule.may_go_on(said[:middle], self._budget) for rule in self._open):
                low = middle
            else:
                high = middle
        return high

    def _longest(self, said: str) -> tuple[Rule, regex.Match[str]] | None:
        best: tuple[Rule, regex.Match[str]] | None = None
        for rule in self._rules:
            match = rule.match(said, self._budget)
            if match is not None and (best is None or match.end() > best[1].end()):
                best = rule, match
        return best

    def _piece(self, rule: Rule, match: regex.Match[str]) -> Piece:
        """Return the piece of a match, and begin the next one.

        Raises:
            PlanError: the call in it is not allowed.
        """
        call = self._call(rule, match)
        text, lead = match.string[: match.end()], self._lead
        self._lead = self._said = ""
        self._open = self._rules
        self._cut += len(lead) + len(text)
        self._cuts += 1
        if call is None:
            return Piece(lead + text, (), 0.0, (Call(SkillCall("", (text,))),))
        return Piece(lead + text, (call,), call.predicted_s, (Call(call),))

    def _call(self, rule: Rule, match: regex.Match[str]) -> SkillCall | None:
        groups = match.groupdict()
        name = groups.get("skill")
        if name is None:
            return None
        skill = self._skill_set.skills.get(name)
        if skill is None:
            known = ", ".join(self._skill_set.skills)
            raise PlanError(f"unknown skill {_short(name)}: {self._skill_set.name} has {known}")
        arguments = parse_arguments(groups.get("arguments") or "", skill)
        return checked_call(name, skill, arguments, self._times)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


_FLAGS = regex.compile(r"\(\?[aimsu]+\)")
_LOOKS_AROUND = ("(?=", "(?!", "(?<=", "(?<!", "(?P=", "(?(", "\\b", "\\B", "^", "$")
"""What a group may have that means something else where the group stands alone."""


def calls_problem(skill_set: SkillSet) -> str | None:
    """Return why no plan can call any skill of a skill set; None if one can, or it has no skills.

    A rule that cannot be judged counts as one that may call every skill.
    """
    never = uncalled(skill_set)
    if not skill_set.skills or len(never) < len(skill_set.skills):
        return None
    if skill_set.language != "regex":
        return None if skill_set.language == "minispec" else _prose(skill_set)
    if not any(rule.calls_skills for rule in skill_set.compiled_rules):
        return (
            f"no rule has the group skill, so no plan calls {listed(list(never))}: write"
            " (?P<skill>...) around the skill's name in a rule, and (?P<arguments>...) around its"
            " arguments"
        )
    return f"no plan can call a skill: {next(iter(never.values()))}"


def uncalled(skill_set: SkillSet) -> dict[str, str]:
    """Return the skills that no plan can call, each with a sentence that says why.

    A blocking skill among them never blocks.
    """
    if skill_set.language == "minispec":
        return {}
    found = {}
    for name, skill in skill_set.skills.items():
        if skill_set.language == "regex":
            why = _uncalled(skill_set, name)
        else:
            why = f"texts of language {skill_set.language} have no calls"
        if why is not None:
            blocks = ", so it never blocks" if skill.blocking else ""
            found[name] = f"{name} is never called{blocks}: {why}"
    return found


def _prose(skill_set: SkillSet) -> str:
    return (
        f"texts of language {skill_set.language} have no calls, so none of"
        f" {listed(list(skill_set.skills))} is ever called: leave skills out, or use language"
        " minispec or regex"
    )


def _uncalled(skill_set: SkillSet, name: str) -> str | None:
    """Return why no rule calls a skill; None if one may."""
    rules = [rule for rule in skill_set.compiled_rules if _may_name(rule, name)]
    if not rules:
        return "no rule's group skill matches its name"
    if skill_set.skills[name].arguments and not any("(?P<arguments>" in _named(r) for r in rules):
        return "the rule that matches its name has no group arguments, and it takes some"
    return None


def _may_name(rule: Rule, name: str) -> bool:
    """Whether a rule's group `skill` may match a name."""
    if not rule.calls_skills:
        return False
    inside = _group(_named(rule), "(?P<skill>")
    if inside is None or any(part in inside for part in _LOOKS_AROUND):
        return True
    flags = "".join(_FLAGS.findall(rule.pattern))
    try:
        whole = regex.compile(flags + without_tables(inside), cache_pattern=False)
        found = whole.fullmatch(name, timeout=FEED_S)
    except (regex.error, TimeoutError, ValueError, KeyError, RecursionError):
        return True
    return found is not None


def _named(rule: Rule) -> str:
    """Return a rule's pattern with its names in one notation."""
    return regex.sub(r"\(\?<([A-Za-z_]\w*)>", r"(?P<\1>", rule.pattern)


def _group(pattern: str, begin: str) -> str | None:
    """Return the pattern inside a group; None if the group is not unique or not closed."""
    if pattern.count(begin) != 1:
        return None
    first = place = pattern.find(begin) + len(begin)
    depth = 1
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            place += 1
        elif char == "[":
            place = set_end(pattern, place)
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                return pattern[first:place]
        place += 1
    return None
