"""Prompts: a skill set's pre-stored part, pinned in the engine, and the task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from timely_llm.core.echo import listed, quoted
from timely_llm.core.errors import RequestError
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected
from timely_llm.engines.contract import Engine, Prefix
from timely_llm.engines.tokenizer_contract import Message, Tokenizer
from timely_llm.skills.checkers import make_checker
from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.grammar import plan_grammar
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import StopChecker


@dataclass(frozen=True)
class Known:
    """A registered skill set.

    Attributes:
        prefix: what all its prompts begin with, pinned.
        execution_times: what is learned of its durations.
    """

    skill_set: SkillSet
    prefix: Prefix
    execution_times: ExecutionTimes

    @cached_property
    def grammar(self) -> str | None:
        """Its plans' grammar, in Lark's notation; None if its language has none."""
        return plan_grammar(self.skill_set) if self.skill_set.language == "minispec" else None

    def checker(self) -> StopChecker:
        """Return a new stop checker for one plan."""
        return make_checker(self.skill_set, self.execution_times)


class Prompts:
    """The skill sets an engine knows, each with the beginning that all its prompts share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, Known] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def all(self) -> list[Known]:
        """The known skill sets."""
        return list(self._known.values())

    def known(self, name: str) -> Known:
        """Return a known skill set.

        Raises:
            Rejected: it is not known.
        """
        if name not in self._known:
            known = listed(sorted(self._known))
            raise Rejected(
                ErrorCode.UNKNOWN_SKILL_SET,
                f"unknown skill set {quoted(name)}: registered are {known}",
            )
        return self._known[name]

    def register(self, skill_set: SkillSet) -> int:
        """Pre-store a skill set: compute and keep the KV of what all its prompts begin with.

        Returns:
            Tokens of the shared beginning.

        Raises:
            RequestError: another skill set of this name is registered, or its text spells a
                control token of the model.
        """
        known = self._known.get(skill_set.name)
        if known is not None and known.skill_set != skill_set:
            raise RequestError(
                f"a different skill set is registered as {quoted(skill_set.name)}: choose another"
                " name"
            )
        if known is None:
            check_words(self._engine.tokenizer, "the skill set", skill_set.prompt_text())
            # What two prompts with different tasks have in common is the fixed part, whatever
            # the model's chat template does.
            prompts = [self._encode(skill_set, task) for task in ("A task.", "1: other words")]
            prefix = self._engine.pin_prefix(common(*prompts))
            known = Known(skill_set, prefix, ExecutionTimes(skill_set))
            self._known[skill_set.name] = known
        return len(known.prefix.token_ids)

    def build(self, request: PlanRequest) -> tuple[list[int], Prefix | None]:
        """Return the prompt's token ids and the pinned prefix that they begin with.

        Raises:
            RequestError: the task spells a control token of the model.
        """
        known = self._known[request.skill_set]
        check_words(self._engine.tokenizer, "the task", request.task)
        token_ids, prefix = self._encode(known.skill_set, request.task), known.prefix
        begins = tuple(token_ids[: len(prefix.token_ids)]) == prefix.token_ids
        return token_ids, prefix if begins and prefix.token_ids else None

    def _encode(self, skill_set: SkillSet, task: str) -> list[int]:
        messages: list[Message] = [
            {"role": "system", "content": skill_set.prompt_text()},
            {"role": "user", "content": task},
        ]
        return self._engine.tokenizer.encode_chat(messages)


def check_words(tokenizer: Tokenizer, what: str, text: str) -> None:
    """Find out whether a text is nothing but words.

    Raises:
        Rejected: it spells a control token of the model.
    """
    control = tokenizer.control_text(text)
    if control is not None:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            f"{what} spells {quoted(control)}, a control token of the model: leave it out",
        )


def common(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the tokens that both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return [token for token, _ in pairs]
