"""How long steps take on named hardware: what the simulated engine keeps to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from timely_llm.core.documents import load_document
from timely_llm.core.errors import EngineError

MEASURED = "measured:"
"""What comes before a file that `timely-llm profile --engine` wrote, where a name is asked for."""

MAX_BYTES = 65_536


@dataclass(frozen=True)
class Profile:
    """Seconds of a step: `base_s + rows * row_s + prefill * prefill_token_s + context * ...`.

    Where rows were measured one by one, their table takes the place of the first two terms. Where
    prompts cost nothing, each is one more row.

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

    @property
    def prompts_are_free(self) -> bool:
        """Whether a prompt takes no longer than a decode row."""
        return not (self.prefill_token_s or self.prefill_s)

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
            "rtx4090-phi3-mini",
            "paper 001 (TimelyLLM), Table 1: Phi-3 mini 128k on an RTX 4090; of rows it says"
            " nothing: each as long as with Llama 3 8B",
            base_s=0.0216,
            row_s=0.00015,
            prefill_token_s=0.00019,
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


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    return text


_Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
_Text = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_one_line)]


class _Measured(BaseModel):
    """A profile in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Text
    source: _Text
    base_s: _Seconds
    row_s: _Seconds
    prefill_token_s: _Seconds
    context_token_s: _Seconds = 0.0
    prefill_s: _Seconds = 0.0
    table_s: Annotated[tuple[_Seconds, ...], Field(max_length=4096)] = ()
    beyond_s: _Seconds = 0.0

    @model_validator(mode="after")
    def _takes_time(self) -> _Measured:
        first_rows = self.table_s or (self.base_s + self.row_s,)
        if not min(*first_rows, self.base_s + self.prefill_s + self.prefill_token_s):
            raise ValueError("every step must take some time")
        return self


def step_time_profile(name: str) -> Profile:
    """Return a profile by its name, or the one in a file: "measured:FILE".

    Raises:
        EngineError: there is no profile of that name, or the file holds none.
    """
    if name.startswith(MEASURED):
        return read_profile(Path(name.removeprefix(MEASURED)))
    if name not in PROFILES:
        allowed = ", ".join((*PROFILES, f"{MEASURED}FILE"))
        raise EngineError(f"unknown profile {name!r}: choose one of {allowed}")
    return PROFILES[name]


def read_profile(path: Path) -> Profile:
    """Return the profile in a YAML file; nothing in it is trusted.

    Raises:
        EngineError: one sentence; it cannot be read, or a value is not possible.
    """
    try:
        readable = path.is_file() and path.stat().st_size <= MAX_BYTES
    except OSError:  # such as a name that is too long
        readable = False
    if not readable:
        raise EngineError(
            f"{str(path)!r} is no file of at most {MAX_BYTES} bytes, as timely-llm profile --engine"
            " writes it"
        )
    return Profile(**dict(load_document(path, _Measured, "profile", EngineError)))
