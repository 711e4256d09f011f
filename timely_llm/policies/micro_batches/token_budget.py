"""Token budgets of micro-batches: Algorithm 1 of Ahn et al. 2025, a static one, fixed chunks."""

from __future__ import annotations

from typing import NamedTuple

from timely_llm.core.errors import ConfigurationError


class TokenBudget(NamedTuple):
    """The most tokens of one micro-batch.

    Attributes:
        tokens: most tokens in all.
        prefill: most prompt tokens among them.
        decode: most decoded tokens among them, one a row.
        prompts: most prompts that have a chunk in it; None: any number.
    """

    tokens: int
    prefill: int
    decode: int
    prompts: int | None = None


def even(tokens: int, parts: int) -> tuple[int, ...]:
    """Return `tokens` in `parts` that differ by at most one, the larger parts first."""
    base, more = divmod(tokens, parts)
    return (base + 1,) * more + (base,) * (parts - more)


class PrefillQueue(NamedTuple):
    """Prefill budgets of the next micro-batches, the next one first (Ahn et al. 2025, Algorithm 1).

    A value: `take` returns the queue that remains. Sums of tokens are conserved: the prompt tokens
    that came in are those in budgets that were taken, plus those in the queue.

    Attributes:
        budgets: prompt tokens of each micro-batch.
    """

    budgets: tuple[int, ...] = ()

    def take(
        self, micro_batches: int, decoding: int, new_prefill: int = 0
    ) -> tuple[TokenBudget, PrefillQueue]:
        """Return the budget of the next micro-batch, and the queue after it.

        The pseudocode leaves three things open. Line 10 names no end of the queue: the budget that
        waited longest is taken. "New scheduled prefill tokens" are read as those of prompts
        admitted since the last call. Where the number of micro-batches falls, line 4 counts
        entries that line 6 leaves in the queue, so that their tokens count twice: here all entries
        are spread anew. It also has no rule for a budget that is not spent, such as that of a
        micro-batch in which a prompt ends: here `new_prefill` takes such tokens back.

        Args:
            micro_batches: number of micro-batches from now on, at least 1.
            decoding: sequences that decode, in all micro-batches together.
            new_prefill: prompt tokens admitted since the last call, with those that evictions added
                and those of budgets that were taken and not spent.

        Raises:
            ConfigurationError: for fewer than one micro-batch or a negative number of tokens.
        """
        if micro_batches < 1 or decoding < 0 or new_prefill < 0:
            raise ConfigurationError(
                f"{micro_batches} micro-batches, {decoding} decoding sequences and {new_prefill} "
                "new prompt tokens: at least 1, 0 and 0 are allowed"
            )
        budgets = self.budgets
        if new_prefill > 0 or len(budgets) > micro_batches:
            budgets = even(sum(budgets) + new_prefill, micro_batches)
        prefill = budgets[0] if budgets else 0
        decode = -(-decoding // micro_batches)
        return TokenBudget(prefill + decode, prefill, decode, 1), PrefillQueue(budgets[1:])


def static_budget(tokens: int) -> TokenBudget:
    """Return a budget that prompts and decoding sequences share, as vLLM's own."""
    return TokenBudget(tokens, tokens, tokens)


def fixed_chunk(tokens: int, decoding: int) -> TokenBudget:
    """Return a fixed budget that decoding sequences fill first (Agrawal et al. 2024, Algorithm 3).

    Args:
        tokens: tokens of each micro-batch.
        decoding: sequences that can decode in this micro-batch.
    """
    decode = min(decoding, tokens)
    return TokenBudget(tokens, tokens - decode, decode)
