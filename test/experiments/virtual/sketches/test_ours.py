"""Pipelined sketches by worth, on a few questions."""

from __future__ import annotations

from statistics import fmean

from timely_llm.experiments.virtual.sketches.bench import Bench, ShownAnswer
from timely_llm.experiments.virtual.sketches.ours import Ours, OursRules
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion, questions
from timely_llm.experiments.virtual.sketches.testbed import FAR_MODELS, Devices


def answers(
    rules: OursRules, asked: list[BenchQuestion], far: str = "llama3-70b"
) -> list[ShownAnswer]:
    bench = Bench(asked)
    return bench.run(Ours(bench, Devices(FAR_MODELS[far]), rules))


def one(tokens: int, category: str = "stem") -> list[BenchQuestion]:
    return [BenchQuestion("q", category, 0.0, tokens, 1.0, 7)]


EAGER = OursRules(horizon_s=60.0, share=0.4)


def test_the_first_sentence_is_expanded_while_the_others_are_sketched() -> None:
    (answer,) = answers(EAGER, one(500))
    whole, piped = (
        answers(OursRules(60.0, share=0.4, pipelined=on), one(500))[0].shown_s[0]
        for on in (False, True)
    )
    assert answer.sketch_tokens > 150
    assert piped < 0.2 * whole


def test_every_token_of_the_answer_is_written_once() -> None:
    (answer,) = answers(EAGER, one(500))
    assert answer.edge_tokens == len(answer.shown_s) == 500
    assert answer.cloud_tokens == answer.sketch_tokens


def test_a_patient_user_gets_the_clouds_own_words() -> None:
    (answer,) = answers(OursRules(horizon_s=100_000.0), one(500))
    assert (answer.sketch_tokens, answer.model) == (0, "")


def test_a_price_of_the_clouds_tokens_makes_sketches_shorter() -> None:
    asked = questions(30.0, 0, 20)
    free, paid = (
        fmean(a.cloud_tokens for a in answers(OursRules(token_price=price), asked))
        for price in (0.0, 0.002)
    )
    assert paid < 0.8 * free


def test_edges_answer_alone_only_where_that_is_allowed() -> None:
    paid = OursRules(token_price=0.1)
    assert answers(paid, one(500))[0].cloud_tokens > 0
    (alone,) = answers(OursRules(token_price=0.1, alone=True), one(500))
    assert (alone.cloud_tokens, alone.edge_tokens) == (0, 500)


def test_a_cloud_without_smaller_models_answers_itself_at_no_further_cost() -> None:
    (answer,) = answers(OursRules(), one(500), "qwen2.5-1.5b")
    assert answer.cloud_tokens == 500
