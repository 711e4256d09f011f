"""Prompts: a skill set's pre-stored part, pinned in the engine, and the task."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from timely_llm.core.errors import EngineError, RequestError
from timely_llm.core.request import ErrorCode, PlanRequest, Rejected, unknown_skill_set
from timely_llm.core.text import quoted, text_problem
from timely_llm.engines.contract import Engine, Message, Prefix, Tokenizer
from timely_llm.skills.checkers import checker_maker
from timely_llm.skills.execution_time import ExecutionTimes
from timely_llm.skills.minispec.grammar import plan_grammar
from timely_llm.skills.skill_set import SkillSet
from timely_llm.skills.stop_checker import StopChecker

PIECE_TOKENS = 64
"""Tokens of a prompt that are computed at a time while others are served."""
Pieces = Generator[None, None, int]
"""Work in pieces; between two of them others may be served. It returns a number of tokens."""


@dataclass(frozen=True)
class RegisteredSkillSet:
    """A registered skill set.

    Attributes:
        text: what all its prompts begin with.
        prefix: its tokens, pinned.
        execution_times: what is learned of its durations.
        checker: makes a stop checker for one plan.
    """

    skill_set: SkillSet
    text: str
    prefix: Prefix
    execution_times: ExecutionTimes
    checker: Callable[[], StopChecker]

    @cached_property
    def grammar(self) -> str | None:
        """Its plans' grammar, in Lark's notation; None if its language has none."""
        return plan_grammar(self.skill_set) if self.skill_set.language == "minispec" else None


class SkillSetPrompts:
    """The skill sets an engine knows, each with the beginning that all its prompts share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, RegisteredSkillSet] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def all(self) -> list[RegisteredSkillSet]:
        """The known skill sets."""
        return list(self._known.values())

    def known(self, name: str) -> RegisteredSkillSet:
        """Return a known skill set.

        Raises:
            Rejected: it is not known.
        """
        if name not in self._known:
            raise unknown_skill_set(name, self._known)
        return self._known[name]

    def register(self, skill_set: SkillSet) -> int:
        """Pre-store a skill set, all at once; see `pieces`."""
        return in_one(self.pieces(skill_set, 2**31))

    def pieces(self, skill_set: SkillSet, piece_tokens: int = PIECE_TOKENS) -> Pieces:
        """Pre-store a skill set: compute and keep the KV of what all its prompts begin with.

        Args:
            skill_set: what a robot can do.
            piece_tokens: computed at a time.

        Returns:
            Tokens of the shared beginning.

        Raises:
            RequestError: another skill set of this name is registered, its text is no Unicode,
                or it spells a control token of the model.
            EngineError: there is no room for it.
        """
        known = self._known.get(skill_set.name)
        if known is not None:
            self._check_same(known, skill_set)
            return len(known.prefix.token_ids)
        text = skill_set.prompt_text()
        problem = text_problem("the skill set", text)
        if problem is not None:
            raise Rejected(ErrorCode.INVALID_REQUEST, problem)
        check_words(self._engine.tokenizer, "the skill set", text)
        # What two prompts with different tasks have in common is the fixed part, whatever
        # the model's chat template does.
        prompts = []
        for task in ("A task.", "1: other words"):
            yield
            prompts.append(self._encode(text, task))
        token_ids = common(*prompts)
        pinned = False
        try:
            left = len(token_ids) + 1
            while (now := self._engine.prepare_prefix(token_ids, piece_tokens)) and now < left:
                left = now
                yield
            prefix, pinned = self._engine.pin_prefix(token_ids), True
        finally:
            if not pinned:
                self._unpin(token_ids)
        times = ExecutionTimes(skill_set)
        checker = checker_maker(skill_set, times)
        self._known[skill_set.name] = RegisteredSkillSet(skill_set, text, prefix, times, checker)
        return len(token_ids)

    def unregister(self, name: str) -> None:
        """Forget a skill set, what was learned of its durations, and the KV of its prompt.

        Raises:
            Rejected: it is not known.
            EngineError: a request uses it.
        """
        known = self.known(name)
        del self._known[name]
        try:
            self._unpin(known.prefix.token_ids)
        except EngineError:
            self._known[name] = known
            raise

    def _unpin(self, token_ids: Sequence[int]) -> None:
        """Free the KV of a prompt, unless another skill set has the same one."""
        if all(known.prefix.token_ids != tuple(token_ids) for known in self._known.values()):
            self._engine.unpin_prefix(token_ids)

    @staticmethod
    def _check_same(known: RegisteredSkillSet, skill_set: SkillSet) -> None:
        if known.skill_set != skill_set:
            raise RequestError(
                f"a different skill set is registered as {quoted(skill_set.name)}: unregister it"
                " first, or choose another name"
            )

    def build(self, request: PlanRequest) -> tuple[list[int], Prefix | None]:
        """Return the prompt's token ids and the pinned prefix that they begin with.

        Raises:
            RequestError: the task spells a control token of the model.
        """
        known = self._known[request.skill_set]
        check_words(self._engine.tokenizer, "the task", request.task)
        token_ids, prefix = self._encode(known.text, request.task), known.prefix
        begins = tuple(token_ids[: len(prefix.token_ids)]) == prefix.token_ids
        return token_ids, prefix if begins and prefix.token_ids else None

    def _encode(self, text: str, task: str) -> list[int]:
        messages: list[Message] = [
            {"role": "system", "content": text},
            {"role": "user", "content": task},
        ]
        return self._engine.tokenizer.encode_chat(messages)


def in_one(pieces: Pieces) -> int:
    """Do all pieces of a work; return what it returns."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            tokens: int = done.value
            return tokens


def check_words(tokenizer: Tokenizer, what: str, text: str) -> None:
    """Check that a text spells no control token; a request's characters are checked by itself.

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
