"""PICE on a few questions."""

from __future__ import annotations

from itertools import pairwise

from timely_llm.experiments.virtual.sketches.bench import Bench, ShownAnswer
from timely_llm.experiments.virtual.sketches.pice import Pice, PiceRules
from timely_llm.experiments.virtual.sketches.questions import BenchQuestion, questions
from timely_llm.experiments.virtual.sketches.testbed import FAR_MODELS, Devices

DEVICES = Devices(FAR_MODELS["llama3-70b"])
STATIC = PiceRules(static=True, margin_tokens=0.0)


def answers(
    rules: PiceRules, asked: list[BenchQuestion], far: str = "llama3-70b"
) -> list[ShownAnswer]:
    bench = Bench(asked)
    return bench.run(Pice(bench, Devices(FAR_MODELS[far]), rules))


def one(tokens: int) -> list[BenchQuestion]:
    return [BenchQuestion("q", "stem", 0.0, tokens, 1.0, 7)]


def test_short_answers_come_from_the_cloud_with_the_tokens_of_their_length() -> None:
    (answer,) = answers(PiceRules(), one(200))
    assert (answer.sketch_tokens, answer.cloud_tokens, answer.edge_tokens) == (0, 210, 0)
    assert len(answer.shown_s) == 200


def test_long_answers_are_sketched_and_an_edge_writes_each_token() -> None:
    (answer,) = answers(PiceRules(), one(500))
    assert 190 <= answer.sketch_tokens <= 210
    assert answer.cloud_tokens == answer.sketch_tokens + 10
    assert answer.edge_tokens == len(answer.shown_s) == 500
    assert answer.shown_s == sorted(answer.shown_s)


def test_with_the_latency_of_an_idle_cloud_a_larger_model_is_not_taken() -> None:
    (answer,) = answers(PiceRules(loaded=False), one(500))
    assert answer.model == "qwen2.5-1.5b"


def test_a_cloud_without_smaller_models_answers_itself() -> None:
    (answer,) = answers(PiceRules(), one(500), "qwen2.5-1.5b")
    assert answer.sketch_tokens == 0


def test_the_dynamic_scheduler_sketches_less_when_edges_are_behind() -> None:
    asked = questions(60.0, 0, 40)
    static, dynamic = (
        sum(a.sketch_tokens > 0 for a in answers(rules, asked))
        for rules in (STATIC, PiceRules(most_queued=1))
    )
    assert dynamic < static


def test_rows_without_merging_write_a_sentence_each() -> None:
    merged, alone = (answers(PiceRules(merge=merge), one(500))[0] for merge in (True, False))
    assert alone.end_s < merged.end_s
    gaps = [later - earlier for earlier, later in pairwise(alone.shown_s)]
    assert gaps.count(0.0) > gaps.count(max(gaps))
