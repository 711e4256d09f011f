"""How long steps take on named hardware: what the simulated engine keeps to."""

from __future__ import annotations

from dataclasses import dataclass

from timely_llm.core.errors import EngineError


@dataclass(frozen=True)
class Profile:
    """Seconds of a step: `base_s + rows * row_s + prefill * prefill_token_s + context * ...`.

    Where rows were measured one by one, their table takes the place of the first two terms.

    Attributes:
        name: what users call it.
        source: where the numbers come from.
        base_s: seconds of an empty step.
        row_s: seconds for each sequence that decodes one token.
        prefill_token_s: seconds for each prompt token.
        context_token_s: seconds for each token that is attended to.
        prefill_s: seconds that a step takes longer as soon as it computes a prompt at all.
        table_s: seconds of a step of 1, 2, ... rows; with more, each adds `beyond_s`.
        beyond_s: see `table_s`.
    """

    name: str
    source: str
    base_s: float
    row_s: float
    prefill_token_s: float
    context_token_s: float = 0.0
    prefill_s: float = 0.0
    table_s: tuple[float, ...] = ()
    beyond_s: float = 0.0

    def step_s(self, rows: int, prefill_tokens: int = 0, context_tokens: int = 0) -> float:
        """Return the seconds of a step.

        Args:
            rows: sequences that decode one token each.
            prefill_tokens: tokens computed by sequences that compute more than one.
            context_tokens: tokens that the step's sequences attend to.
        """
        return (
            self._rows_s(rows)
            + (self.prefill_s if prefill_tokens else 0.0)
            + self.prefill_token_s * prefill_tokens
            + self.context_token_s * context_tokens
        )

    def _rows_s(self, rows: int) -> float:
        if not self.table_s:
            return self.base_s + self.row_s * rows
        if rows == 0:
            return self.base_s
        most = len(self.table_s)
        return self.table_s[min(rows, most) - 1] + self.beyond_s * max(rows - most, 0)


DEFAULT_PROFILE = "rtx4090-llama3-8b"

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            DEFAULT_PROFILE,
            "paper 001 (TimelyLLM), Table 1: Llama 3 8B on an RTX 4090",
            base_s=0.0216,
            row_s=0.00015,
            prefill_token_s=0.00011,
        ),
        Profile(
            "rtx4060ti-chatglm2-6b",
            "paper 000 (SLICE), Figure 1: ChatGLM2-6B on an RTX 4060 Ti; prompts, of which it says"
            " nothing, as on the RTX 4090; base and row are a line through its first rows",
            base_s=0.0168,
            row_s=0.0093,
            prefill_token_s=0.00011,
            table_s=(0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286),
            beyond_s=0.0004,
        ),
        Profile(
            "v100x2-qwen2.5-7b",
            "paper 002 (SLO-aware scheduling), Table 2: Qwen2.5 7B on two V100; the fixed part of a"
            " prefill as of one prompt a step",
            base_s=0.01585,
            row_s=0.000275,
            prefill_token_s=0.00011,
            context_token_s=0.0000002,
            prefill_s=0.0335,
        ),
        Profile("millisecond", "made up, for tests: every step takes 1 ms", 0.001, 0.0, 0.0),
    )
}


def step_time_profile(name: str) -> Profile:
    """Return a profile by its name.

    Raises:
        EngineError: there is no profile of that name.
    """
    if name not in PROFILES:
        raise EngineError(f"unknown profile {name!r}: choose one of {', '.join(PROFILES)}")
    return PROFILES[name]
