"""`timelyllm-phases`: the time of one request by phase (Ling et al. 2024, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from timely_llm.core.clock import timed
from timely_llm.engines.contract import Engine, Tokenizer
from timely_llm.engines.registry import make_engine, parse_engine_args
from timely_llm.experiments.contract import (
    EngineOptions,
    Experiment,
    ExperimentError,
    ReportProgress,
)
from timely_llm.experiments.realtime.suspended_plan import PROMPT_TOKENS, SuspendedPlan
from timely_llm.experiments.results.document import Paper, Row, RunDocument

TOKENISATION, FIRST, SECOND, LAST, DECODING, DETOKENISATION, TOTAL = (
    "tokenisation",
    "token 0, with prefill",
    "token 1",
    "last token",
    "all tokens",
    "detokenisation",
    "total",
)
MEASURES = ("tokens", "ms", "share", "cpu_ms")
DEFINITIONS = {
    "phase": f"{TOKENISATION}: from the prompt's text to its token ids, chat template included;"
    f" {FIRST}: from the submission of the prompt to its first token; {SECOND} and {LAST}: one step"
    f" each; {DECODING}: all steps, the prefill included; {DETOKENISATION}: the text of each token"
    f" as it is generated; {TOTAL}: {TOKENISATION}, {DECODING} and {DETOKENISATION}",
    "tokens": "tokens that the phase takes or makes",
    "ms": "milliseconds",
    "share": f"ms over those of {TOTAL}",
    "cpu_ms": "CPU milliseconds of all threads: other programs do not count",
}


def _table_1(model: str, *ms: float) -> Paper:
    total = ms[0] + ms[4] + ms[5]
    phases = (TOKENISATION, FIRST, SECOND, LAST, DECODING, DETOKENISATION)
    tokens = (2884, None, None, None, 15, 15)
    return Paper(
        title=f"Ling et al. 2024, Table 1, {model}",
        note="In float16 on an RTX 4090 in Hugging Face Transformers.",
        rows=(
            *(
                {"phase": phase, "tokens": count, "ms": one, "share": one / total}
                for phase, count, one in zip(phases, tokens, ms, strict=True)
            ),
            {"phase": TOTAL, "ms": total, "share": 1.0},
        ),
    )


TABLE_1 = (
    _table_1("Llama 3 8B", 2.609, 328.45, 21.93, 21.77, 611.2, 0.052),
    _table_1("Phi-3 mini", 1.541, 563.04, 22.24, 22.00, 841.7, 0.091),
)


@dataclass(frozen=True)
class PhasesOptions(EngineOptions):
    """Options of `timelyllm-phases`."""

    engine: str = "transformers"
    tokens: int = 15


def run(options: PhasesOptions, progress: ReportProgress) -> RunDocument:
    """Return the time of each phase of one request that is alone on an engine."""
    args = parse_engine_args(options.engine_args)
    longest = PROMPT_TOKENS + options.tokens + 1
    engine = make_engine(
        options.engine, model=options.model_path, max_model_len=longest, max_step_tokens=longest,
        engine_args=args,
    )  # fmt: skip
    rows: list[Row] = []
    try:
        room = min(PROMPT_TOKENS, engine.capacity.max_model_len - options.tokens - 1)
        text = prompt(engine.tokenizer, room)
        for repeat in range(options.repeats + 1):
            progress(repeat, options.repeats + 1)
            found = phases(engine, text, options.tokens)
            if repeat:  # repeat 0 warms up
                rows += [{**row, "seed": repeat - 1} for row in found]
    finally:
        engine.close()
    progress(1, 1)
    return EXPERIMENT.document(
        f"{options.engine}, {options.model_name}",
        {**options.setup, "tokens of the answer": options.tokens, "repeats": options.repeats},
        keys=("phase",),
        measures=MEASURES,
        definitions=DEFINITIONS,
        rows=tuple(rows),
        papers=TABLE_1,
        notes=(
            "Of two rows of the paper the first is Llama 3 8B, the second Phi-3 mini.",
            "The first repeat warms up and does not count. EOS tokens end nothing.",
        ),
    )


def prompt(tokenizer: Tokenizer, most: int) -> str:
    """Return a text of which the prompt has about as many tokens as possible, at most `most`.

    Raises:
        ExperimentError: not even one sentence fits.
    """
    left = most - len(_encode(tokenizer, ""))
    sentences: list[str] = []
    for number in range(most):
        sentence = f" Room {number} has {number % 7} chairs."
        left -= len(tokenizer.encode(sentence))
        if left < 0:
            break
        sentences.append(sentence)
    if not sentences:
        raise ExperimentError(f"the model leaves {most} tokens for a prompt: too few for one")
    return "".join(sentences).strip()


def phases(engine: Engine, text: str, tokens: int) -> list[Row]:
    """Return a row for each phase of one request.

    Args:
        engine: an engine without other sequences.
        text: of the prompt.
        tokens: tokens of the answer, at least 2.
    """
    prompt_ids, *tokenised = timed(lambda: _encode(engine.tokenizer, text))
    plan = SuspendedPlan(engine, prompt_ids, None, 0)
    steps = [timed(plan.until_token)[1:] for _ in range(tokens)]
    plan.end()
    stream, answer = engine.tokenizer.stream(), plan.token_ids[len(prompt_ids) :]
    _, *detokenised = timed(lambda: [stream.push(token_id) for token_id in answer])
    decoding = [sum(spent) for spent in zip(*steps, strict=True)]
    total = [sum(spent) for spent in zip(tokenised, decoding, detokenised, strict=True)]
    found: dict[str, tuple[int | None, Sequence[float]]] = {
        TOKENISATION: (len(prompt_ids), tokenised),
        FIRST: (None, steps[0]),
        SECOND: (None, steps[1]),
        LAST: (None, steps[-1]),
        DECODING: (len(answer), decoding),
        DETOKENISATION: (len(answer), detokenised),
        TOTAL: (None, total),
    }
    return [
        {
            "phase": phase,
            "tokens": count,
            "ms": 1e3 * wall_s,
            "share": wall_s / total[0],
            "cpu_ms": 1e3 * cpu_s,
        }
        for phase, (count, (wall_s, cpu_s)) in found.items()
    ]


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode_chat([{"role": "user", "content": text}])


EXPERIMENT = Experiment(
    name="timelyllm-phases",
    question="Where does the time of one request go: tokenisation, prefill, decoding,"
    " detokenisation? (Ling et al. 2024, Table 1)",
    run=run,
    defaults=PhasesOptions(),
    reasons={"trace": "since it measures an engine with tasks of its own"},
)
