"""Prompts: a skill set's pre-stored part, pinned in the engine, and the task."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from timely_llm.core.errors import RequestError
from timely_llm.core.request import PlanRequest
from timely_llm.engines.contract import Engine, Message, Prefix
from timely_llm.skills.skill_set import SkillSet


class Prompts:
    """The skill sets an engine knows, each with the beginning that all its prompts share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[SkillSet, Prefix]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def __len__(self) -> int:
        return len(self._known)

    @property
    def names(self) -> list[str]:
        """The known skill sets."""
        return sorted(self._known)

    def skill_set(self, name: str) -> SkillSet:
        """Return a known skill set.

        Raises:
            RequestError: it is not known.
        """
        if name not in self._known:
            known = ", ".join(self.names) or "none"
            raise RequestError(f"unknown skill set {name!r}: registered are {known}")
        return self._known[name][0]

    def register(self, skill_set: SkillSet) -> int:
        """Pre-store a skill set: compute and keep the KV of what all its prompts begin with.

        Returns:
            Tokens of the shared beginning.

        Raises:
            RequestError: another skill set of this name is registered.
        """
        known = self._known.get(skill_set.name)
        if known is not None and known[0] != skill_set:
            raise RequestError(
                f"a different skill set is registered as {skill_set.name!r}: choose another name"
            )
        if known is None:
            # What two prompts with different tasks have in common is the fixed part, whatever
            # the model's chat template does.
            prompts = [self._encode(skill_set, task) for task in ("A task.", "1: other words")]
            shared = _common(*prompts)
            self._known[skill_set.name] = (skill_set, self._engine.pin_prefix(shared))
        return len(self._known[skill_set.name][1].token_ids)

    def build(self, request: PlanRequest) -> tuple[list[int], Prefix | None]:
        """Return the prompt's token ids and the pinned prefix that they begin with."""
        skill_set, prefix = self._known[request.skill_set]
        token_ids = self._encode(skill_set, request.task)
        begins = tuple(token_ids[: len(prefix.token_ids)]) == prefix.token_ids
        return token_ids, prefix if begins and prefix.token_ids else None

    def _encode(self, skill_set: SkillSet, task: str) -> list[int]:
        messages: list[Message] = [
            {"role": "system", "content": skill_set.prompt_text()},
            {"role": "user", "content": task},
        ]
        return self._engine.tokenizer.encode_chat(messages)


def _common(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Return the tokens that both begin with."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return [token for token, _ in pairs]
