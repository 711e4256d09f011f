"""The engine without a model: its text comes from a script, its step times from a profile."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, repeat
from random import Random

from timely_llm.core.clock import Clock, WallClock
from timely_llm.core.step import StepResult
from timely_llm.engines.contract import Message
from timely_llm.engines.ledger_engine import LedgerEngine
from timely_llm.engines.sequences import AdmittedSequence, AdmittedStep, EngineLimits, SequenceState

LONG_PROMPT = 256
"""Prompt tokens of a step from which on a GPU is bound by arithmetic, no longer by its memory."""


@dataclass(frozen=True)
class Profile:
    """Seconds of a step: `base_s + rows * row_s + prefill * prefill_token_s + context * ...`.

    A table of measured rows replaces the first two terms. If prompts cost nothing, each counts as
    one more row.

    Attributes:
        name: name for users.
        source: origin of the numbers.
        base_s: seconds of an empty step.
        row_s: seconds for each sequence that decodes one token.
        prefill_token_s: seconds for each prompt token.
        context_token_s: seconds for each token that is attended to.
        prefill_s: seconds that a step with a prompt takes longer, whatever the prompt's length.
        table_s: seconds of a step of 1, 2, ... rows; empty: none were measured.
        beyond_s: seconds of each row beyond the table.
        long_prefill_token_s: seconds for each prompt token of a step after the first `LONG_PROMPT`;
            None: as for the first ones.
        swap_token_s: seconds for the KV of each token that moves between the device and host
            memory; 0: not known.
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
    swap_token_s: float = 0.0
    long_prefill_token_s: float | None = None

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
            + self._prefill_s(prefill_tokens)
            + self.context_token_s * context_tokens
        )

    @property
    def prompts_are_free(self) -> bool:
        """Whether a prompt takes no longer than a decode row."""
        return not (self.prefill_token_s or self.prefill_s or self.long_prefill_token_s)

    def _prefill_s(self, tokens: int) -> float:
        if self.long_prefill_token_s is None:
            return self.prefill_token_s * tokens
        first = min(tokens, LONG_PROMPT)
        return self.prefill_token_s * first + self.long_prefill_token_s * (tokens - first)

    def _rows_s(self, rows: int) -> float:
        if not self.table_s:
            return self.base_s + self.row_s * rows
        if rows == 0:
            return self.base_s
        most = len(self.table_s)
        return self.table_s[min(rows, most) - 1] + self.beyond_s * max(rows - most, 0)


DEFAULT_PROFILE = "rtx4090-llama3-8b"

LLAMA3_KV_BYTES = 2 * 32 * 8 * 128 * 2
"""Bytes of the KV of one token of Llama 3 8B: keys and values of 32 layers, 8 heads of 128 values,
2 bytes each."""

SWAP_TOKEN_S = 0.0095 / (170.35e6 / LLAMA3_KV_BYTES)
"""Seconds for the KV of one token from host memory to an RTX 4090: 170.35 MB take 9.5 ms (Ling et
al. 2024, §4.1), which are 1,300 tokens. The way back is taken to be as fast."""

ZHAN_ANSWER = 500
"""Tokens of an answer in the mean (Zhan et al. 2025, §II-B)."""


def _far(
    model: str, billions: float, tokens_per_s: float, rows: int, answer_s: float, derived: str
) -> Profile:
    """Return the step times of a model in the cloud of Zhan et al. 2025: a line through two points.

    Args:
        model: name.
        billions: parameters.
        tokens_per_s: with one row.
        rows: of the second point.
        answer_s: seconds of an answer with as many rows.
        derived: how the second point is derived from Table III.
    """
    one_s, all_s = 1.0 / tokens_per_s, answer_s / ZHAN_ANSWER
    row_s = (all_s - one_s) / (rows - 1)
    return Profile(
        f"a100x4-{model}",
        f"Zhan et al. 2025 (PICE), {model} in vLLM: one row read ({tokens_per_s:g} tokens/s on two"
        f" A100, Table I); {rows} rows derived from Table III: {derived}, with {ZHAN_ANSWER} tokens"
        " an answer (§II-B); prompt tokens by arithmetic, a quarter of the peak of two A100"
        " (Table II)",
        one_s - row_s, row_s, 2e9 * billions / (2 * 624e12 / 4),
    )  # fmt: skip


def _near(model: str, billions: float, kv_kb: float, queries_per_min: float) -> Profile:
    """Return the step times of a model on an edge of Zhan et al. 2025.

    Args:
        model: name.
        billions: parameters.
        kv_kb: KV of a token, kB.
        queries_per_min: of four edges, one query at a time each.
    """
    token_s = 4 * 60 / queries_per_min / ZHAN_ANSWER
    prompt_token_s = 2e9 * billions / (137.5e12 / 4)
    row_s = prompt_token_s + 700 * kv_kb * 1e3 / 204.8e9
    weights_s = 2e9 * billions / 204.8e9
    return Profile(
        f"orin-{model}",
        f"Zhan et al. 2025 (PICE), {model} on a Jetson AGX Orin: one row derived from Table III,"
        f" where four of them are read to serve {queries_per_min:g} queries a minute of"
        f" {ZHAN_ANSWER} tokens, one at a time each ({1e3 * token_s:.1f} ms a token; its weights"
        f" alone take {1e3 * weights_s:.1f} ms at Table II's 204.8 GB/s); a further row, of which"
        " the paper gives no time, is this package's: KV of 700 tokens at that bandwidth and the"
        " arithmetic of a token; prompt tokens by arithmetic, a quarter of Table II's peak",
        token_s - row_s, row_s, prompt_token_s,
    )  # fmt: skip


_FULL = "as many rows at the throughput of a full batch"
_LITTLE = "as many rows by Little's law, since the batch is not full"


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(
            DEFAULT_PROFILE,
            "Ling et al. 2024 (TimelyLLM), Table 1, Llama 3 8B on an RTX 4090, one request: base"
            " read (21.6 ms a token), prompt token derived from 328 ms for 2,884 of them; the row"
            " cost of 0.15 ms is this package's: the paper gives none, and reading the KV of 2,900"
            " tokens alone takes about 0.4 ms by arithmetic",
            base_s=0.0216,
            row_s=0.00015,
            prefill_token_s=0.00011,
            swap_token_s=SWAP_TOKEN_S,
        ),
        Profile(
            "rtx4090-phi3-mini",
            "Ling et al. 2024 (TimelyLLM), Table 1, Phi-3 mini 128k on an RTX 4090, one request:"
            " base read (21.6 ms a token), prompt token derived from 563 ms for 2,884 of them; the"
            " row cost of 0.15 ms is this package's, as with Llama 3 8B",
            base_s=0.0216,
            row_s=0.00015,
            prefill_token_s=0.00019,
        ),
        Profile(
            "rtx4060ti-chatglm2-6b",
            "Zhou et al. 2025 (SLICE), ChatGLM2-6B (INT4) on an RTX 4060 Ti: 9 rows read (128.6 ms,"
            " Table II); the text says that 8 rows take less than 100 ms and that 1 to 9 grow"
            " nearly linearly; 1 to 8 rows are interpolated so, since Figure 1 has no numbers; 0.4"
            " ms a row beyond 9 is this package's; base and row are a line through the first rows;"
            " prompts, of which the paper gives no time, as on the RTX 4090",
            base_s=0.0168,
            row_s=0.0093,
            prefill_token_s=0.00011,
            table_s=(0.026, 0.035, 0.044, 0.054, 0.063, 0.072, 0.081, 0.095, 0.1286),
            beyond_s=0.0004,
        ),
        Profile(
            "rtx4060ti-released",
            "the released code of Zhou et al. 2025 (SLICE), github.com/willzhoupan/SLICE at"
            " 5404d49, `FindJob` in src/models/basellm.cpp: 1 to 15 rows read, whole milliseconds"
            " that fall by up to 3 ms beyond 9 rows; the code does not say how they were measured;"
            " more rows take as long as 15, since Figure 1's text says that the time is stable"
            " there; base and row are the line through 1 and 7 rows; prompts, of which the code has"
            " no time, as on the RTX 4090",
            base_s=0.0025,
            row_s=0.0115,
            prefill_token_s=0.00011,
            table_s=tuple(
                1e-3 * ms
                for ms in (14, 27, 38, 50, 60, 72, 83, 125, 126, 123, 124, 125, 126, 123, 124)
            ),
        ),
        Profile(
            "v100x2-qwen2.5-7b",
            "Huang et al. 2025, Table 2, Qwen2.5 7B on two V100: base, row and context read (delta,"
            " beta and alpha of decode); prompts derived from the line of one prompt a step; gamma"
            " of decode, 0.00088 ms a token of the mean length, is left out: a step of one row is"
            " 5 % too fast at 1,000 tokens and 10 % at 2,000",
            base_s=0.01585,
            row_s=0.000275,
            prefill_token_s=0.00011,
            context_token_s=0.0000002,
            prefill_s=0.0335,
        ),
        Profile(
            "h100-llama3-8b",
            "measured by timely-llm profile --engine vllm on an H100 80GB HBM3 (vLLM 0.32.0, torch"
            " 2.11.0, bfloat16, load_format=dummy, max_cudagraph_capture_size=1024; 2026-11-23):"
            " Llama 3 8B's shape with random weights, which take as long as trained ones; a line"
            " through 1 to 128 rows; error on unseen steps: median 2.2 %, 95th percentile 8.6 %",
            base_s=0.00801,
            row_s=0.0000404,
            prefill_token_s=0.00000841,
            context_token_s=0.0000000999,
            prefill_s=0.00076,
            long_prefill_token_s=0.0000167,
        ),
        _far("qwen2.5-72b", 72.7, 18.19, 20, 20 * 60 / 14.891, _FULL),
        _far("llama3-70b", 70.6, 18.82, 20, 20 * 60 / 16.33, _FULL),
        _far("qwen2.5-32b", 32.5, 22.13, 28, 28 * 60 / 32.13, f"{_FULL} that has its latency"),
        _far("llama3-8b", 8.0, 76.5, 36, 28.57, _LITTLE),
        _far("qwen2.5-7b", 7.6, 84.28, 45, 30.88, _LITTLE),
        _far("qwen2.5-1.5b", 1.54, 183.33, 58, 23.71, _LITTLE),
        _near("llama3-8b", 8.0, 131.1, 6.03),
        _near("qwen2.5-7b", 7.6, 57.3, 6.68),
        _near("qwen2.5-1.5b", 1.54, 28.7, 21.20),
        Profile(
            "thor-gemma4-12b",
            "NVIDIA 2026 (TensorRT Edge-LLM 0.10.0), Gemma 4 12B (FP16) on a Jetson AGX Thor, with"
            " 2,048 tokens of KV a row: one row read (10.1 tokens/s); a further row derived from 8"
            " rows (74.4 tokens/s in sum), as a line; prompt token derived from 622.8 ms for 2,048"
            " of them, less an empty step",
            base_s=0.0978,
            row_s=0.00122,
            prefill_token_s=0.000256,
        ),
        Profile("millisecond", "made up, for tests: every step takes 1 ms", 0.001, 0.0, 0.0),
    )
}


_PIECES = re.compile(r"[A-Za-z_]{1,4}|[0-9]{1,3}|\s{1,4}|.", re.DOTALL)
_EOS = 0
_LEAD = b"\1"  # keeps leading zero bytes of a token apart from none


@lru_cache(maxsize=65_536)
def _number(piece: str) -> int:
    return int.from_bytes(_LEAD + piece.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=65_536)
def _text(token_id: int) -> str:
    """Return the text of a token id; EOS has none."""
    size = (token_id.bit_length() + 7) // 8
    return token_id.to_bytes(size)[len(_LEAD) :].decode("utf-8", "surrogatepass")


class ScriptTokenizer:
    """Cuts text into tokens of one to four characters; the characters themselves are the id.

    Any text converts to token ids and back without loss. The tokenizer keeps no vocabulary, so a
    server does not grow with new words.
    """

    def __init__(self) -> None:
        self.eos_ids = frozenset({_EOS})

    @property
    def eos_id(self) -> int:
        """The token that ends an answer."""
        return _EOS

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of the messages, each under a line that names its role."""
        text = "".join(f"<{m['role']}>\n{m['content']}\n" for m in messages)
        return self.encode(text + "<assistant>\n")

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return self.ids(_PIECES.findall(text))

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the token ids of texts that are one token each."""
        return list(map(_number, pieces))

    def control_text(self, text: str) -> str | None:
        """Return None: no text stands for the token that ends an answer."""
        return None

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        return "".join(map(_text, token_ids))

    def stream(self) -> ScriptStream:
        """Return a new decoder for one generation."""
        return ScriptStream(self)


class ScriptStream:
    """Decodes token ids into text one by one."""

    def __init__(self, tokenizer: ScriptTokenizer) -> None:
        self._tokenizer = tokenizer

    def push(self, token_id: int) -> str:
        """Return the text of a token."""
        return self._tokenizer.decode([token_id])


Script = Callable[[str, str], str | Sequence[str]]
"""(key, prompt text) -> the whole answer; in a sequence of texts, each text is one token."""


class SimulatedEngine(LedgerEngine):
    """Lets the time of a step pass instead of computing.

    Args:
        profile: seconds of steps.
        script: answers of the model. After tool output the script is called again with the whole
            text so far, and its answer follows.
        clock: a clock with `advance` (a virtual one) is advanced by each step; with another clock
            the engine sleeps. None: the wall clock.
        limits: limits of the engine; None: the defaults.
        in_flight: steps that can be submitted before one is collected; they run one after another.
        async_scheduling: a sequence can take part in a step while its newest token is pending.
    """

    tokenizer: ScriptTokenizer

    def __init__(
        self,
        profile: Profile,
        script: Script,
        clock: Clock | None = None,
        limits: EngineLimits | None = None,
        in_flight: int = 1,
        async_scheduling: bool = False,
    ) -> None:
        super().__init__(ScriptTokenizer(), limits or EngineLimits(), in_flight, async_scheduling)
        self._profile = profile
        self._prompts_are_free = profile.prompts_are_free
        self._script = script
        self._clock = clock or WallClock()
        self._pass_time: Callable[[float], None] = getattr(self._clock, "advance", time.sleep)
        self._answers: dict[str, Iterator[int]] = {}
        self._chances: dict[str, Random] = {}  # of sequences that ask for log-probabilities

    def collect(self) -> StepResult:
        """Return the result of the oldest step; log-probabilities are drawn."""
        result, chances = super().collect(), self._chances
        if not chances:
            return result
        drawn = {
            key: (math.log(chances[key].uniform(0.2, 1.0)),)
            for key in chances.keys() & result.tokens.keys()
        }
        return replace(result, logprobs=drawn)

    def compute(self, parts: Sequence[AdmittedSequence]) -> dict[str, tuple[int]]:
        """Return the next token of each answer."""
        answers = self._answers
        return {
            part.sequence.key: (next(answers[part.sequence.key]),)
            for part in parts
            if part.finishes
        }

    def changed(self, sequence: SequenceState) -> None:
        """Get the answer of a sequence from the script."""
        said = self._script(sequence.key, self.tokenizer.decode(sequence.token_ids))
        answer = self.tokenizer.encode(said) if isinstance(said, str) else self.tokenizer.ids(said)
        # Past the script's end, every token is EOS.
        self._answers[sequence.key] = chain(answer, repeat(self.tokenizer.eos_id))
        if sequence.decoding.logprobs:
            self._chances.setdefault(sequence.key, Random(sequence.decoding.seed))

    def ended(self, key: str) -> None:
        """Drop an answer."""
        self._answers.pop(key, None)
        self._chances.pop(key, None)

    def step_s(self, admitted: AdmittedStep, elapsed_s: float) -> float:
        """Let the seconds of a step pass, by the profile, and return them."""
        rows, prefill, context = content(admitted)
        if self._prompts_are_free:
            rows = len(admitted.sequences)
        seconds = self._profile.step_s(rows, prefill, context)
        self._pass_time(seconds)
        return seconds


def content(admitted: AdmittedStep) -> tuple[int, int, int]:
    """Return the decode rows, prompt tokens and context tokens of a step."""
    rows = prefill = context = 0
    for part in admitted.sequences:
        context += part.start
        if part.tokens == 1:
            rows += 1
        else:
            prefill += part.tokens
    return rows, prefill, context
