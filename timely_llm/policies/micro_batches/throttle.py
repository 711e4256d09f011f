"""Token throttling: budgets by waiting prompt tokens, free KV and pipeline depth."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.policies.micro_batches.token_budget import TokenBudget


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
