"""What documents of experiments with sketches say of their runs."""

from __future__ import annotations

from timely_llm.experiments.results.document import RowValue
from timely_llm.experiments.virtual.sketches.questions import QUESTIONS
from timely_llm.experiments.virtual.sketches.score import SketchOptions
from timely_llm.experiments.virtual.sketches.testbed import DEFAULT_FAR_MODEL, EDGES

PROFILE = f"a100x4-{DEFAULT_FAR_MODEL}"

POLICIES = (
    "`cloud-only`, `edge-only`, `routing` by an oracle of quality, `skeleton` (Ning et al. 2024)"
    " and `speculative` decoding, both in the cloud, `pice-static`, `pice`, and `sketches`: this"
    " package's rules, pipelined and by worth; an edge begins each answer at once, but for"
    " `opening=off`"
)

NOTES = (
    "Words stand in place of a model's: key words, on which models differ, and words of grammar."
    " Rouge-1 shows how much of the cloud's own answer comes through. It does not show whether an"
    " answer is correct or well written: no judge model ran.",
    "The paper names neither the number of questions of a run, nor the batch of models other than"
    " the first, nor the rows of an edge, nor whether several models expanded each sketch here."
    f" {QUESTIONS} questions have its latency of 70 and 72 billion parameters under `cloud-only`.",
)


def setup(options: SketchOptions) -> dict[str, RowValue]:
    """Return the conditions of a run."""
    return {
        "engine": "simulated, in virtual time; cloud and edges decode continuous batches, a token a"
        " step",
        "devices": f"a cloud with four A100, {EDGES} Jetson AGX Orin",
        "questions": f"Poisson, for {options.minutes:.3g} minutes; lengths by category, 500 tokens"
        " in the mean",
        "seeds": options.named_seeds,
    }
