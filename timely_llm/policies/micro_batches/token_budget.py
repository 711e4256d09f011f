"""Token budgets of micro-batches: by queues of prompts (Ahn et al. 2025) and by throttling."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Throttle:
    """Token throttling with its constants (Guo et al. 2025).

    The released code (gllm-rt 0.0.6.post1, `Scheduler.token_throttling`) differs from the paper: it
    divides the waiting tokens only where more than one prompt waits, and applies the lower limit
    before the one by KV, so that little free KV allows fewer tokens than `least`. It also has two
    limits that a caller's capacity has here: the free KV itself, and 2048 decoding sequences. Its
    server's default of `most` is 8192, its engine's 2048; its default schedule is another one.

    Attributes:
        iterations: micro-batches over which waiting prompt tokens are spread: #T, 8 in the paper's
            experiments and in the code (`iterp`).
        most: most prompt tokens of a micro-batch: #MaxP, 2048 in the paper's experiments (`maxp`).
        least: fewest prompt tokens that the limits leave: #MinP, 32 in both (`minp`).
        kv_threshold: share of free KV at which prefill stops: KV_thresh, 0.05 in both (`kvthresh`).
        released: whether the released code's rule is followed where the two differ.
    """

    iterations: int = 8
    most: int = 2048
    least: int = 32
    kv_threshold: float = 0.05
    released: bool = False

    def budget(
        self, waiting: int, prompts: int, kv_free: float, decoding: int, stages: int
    ) -> TokenBudget:
        """Return the budget of the next micro-batch; its two parts are independent of each other.

        Prefill is Eq. 3, and none at the threshold (§3.1.3). Decode is Eq. 4, rounded up: the paper
        does not round, and the code rounds at random with the same mean.

        Args:
            waiting: prompt tokens without KV, of all requests.
            prompts: requests that they belong to.
            kv_free: share of the KV memory that is free, 0 to 1.
            decoding: sequences that decode, in all micro-batches together.
            stages: stages of the pipeline.
        """
        prefill = 0
        if kv_free > self.kv_threshold:
            by_kv = round(self.most * (kv_free - self.kv_threshold) / (1.0 - self.kv_threshold))
            by_waiting = waiting // self.iterations
            if not self.released:
                prefill = max(min(by_waiting, by_kv), self.least)
            elif prompts > 1:
                prefill = min(max(by_waiting, self.least), by_kv)
            else:
                prefill = by_kv
        decode = -(-decoding // stages)
        return TokenBudget(prefill + decode, prefill, decode)
