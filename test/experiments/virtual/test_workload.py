import pytest
from hypothesis import given
from hypothesis import strategies as st

from test.experiments.workloads import job, trace
from test.serving.scripted import DRONE
from timely_llm.engines.simulated import ScriptTokenizer
from timely_llm.experiments.virtual.workload import (
    JobInstance,
    SegmentSpec,
    own_text,
    skill_set,
    task_text,
    works,
)
from timely_llm.skills.minispec.checker import check_plan
from timely_llm.traces.model import TraceError

ROBOT = skill_set()
parts = st.builds(SegmentSpec, st.integers(1, 40), st.floats(0.001, 100), st.floats(0.001, 100))


@given(st.lists(parts, min_size=1, max_size=6))
def test_a_plan_has_the_tokens_and_predictions_of_its_parts(wanted: list[SegmentSpec]) -> None:
    work = JobInstance("w", job("w"), "a", 0.0, True, tuple(wanted))
    assert len(work.pieces) == sum(part.tokens for part in wanted)
    found = check_plan(ROBOT, "".join(work.pieces))
    busy = wanted[:-1] or wanted
    assert [p.predicted_s for p in found[: len(busy)]] == [
        pytest.approx(part.predicted_s, abs=0.0006) for part in busy
    ]
    ends, text = [], ""
    for piece in work.pieces:
        text += piece
        ends += [len(text)] * piece.endswith(";")
    assert len(ends) == len(wanted), "one token ends each part, and none within"


def test_each_prompt_of_real_engines_is_another_one_of_the_same_length() -> None:
    one, two = works(trace(job("j", text="Go up."), job("k", text="Go up.")))
    texts = [own_text(work, 40) for work in (one, two)]
    assert texts[0] != texts[1]
    encode = ScriptTokenizer().encode_chat
    lengths = {len(encode([{"role": "user", "content": t}])) for t in (*texts, task_text(40))}
    assert len(lengths) == 1
    assert own_text(one, 1).endswith("Go up."), "longer ones stay as they are"


def test_skill_times_go_to_segments_in_order_and_the_last_segment_takes_none() -> None:
    usual, short, long = (
        works(trace(job("j", tokens=tokens, seconds=(2.0, 1.0))))[0].parts
        for tokens in ((4, 3, 1), (4, 1), (4, 3, 2, 1))
    )
    assert [part.true_s for part in usual] == [2.0, 1.0, 0.001]
    assert [part.true_s for part in short] == [2.0, 0.001]
    assert [part.true_s for part in long] == [2.0, 1.0, 0.001, 0.001]
    assert all(0.3 <= part.predicted_s / part.true_s <= 2.5 for part in long)


def test_a_load_is_the_same_jobs_asked_by_more_agents_a_little_later() -> None:
    three = works(trace(job("a"), job("b", 0.0001)), load=3, skip=1)
    assert [w.id for w in three] == ["a", "b", "a+1", "b+1", "a+2", "b+2"]
    assert [w.arrival_s for w in three] == pytest.approx([0, 1e-4, 2e-4, 3e-4, 4e-4, 5e-4])
    assert len({w.agent for w in three}) == 6
    assert [w.measured for w in three] == [False, True] * 3


def test_predictions_depend_on_the_seed_alone() -> None:
    one, same, other = (works(trace(job("a"), job("b")), seed=s) for s in (1, 1, 2))
    assert one == same != other
    exact = works(trace(job("a")), prediction_error=0.0)[0]
    assert all(part.true_s == part.predicted_s for part in exact.parts)


def test_a_job_without_tokens_is_cut_by_its_skill_set() -> None:
    asked = trace(job("a", tokens=(), seconds=(), plan="mf(50);tc(90);->True;"))
    found = works(asked, prediction_error=0.0, skill_sets={"drone": DRONE})[0].parts
    assert [part.tokens for part in found] == [5, 5, 4]
    assert found[0].true_s == pytest.approx(2.1744)
    with pytest.raises(TraceError, match="job 'a': its segments' tokens are not known"):
        works(asked)


def test_prompts_have_as_many_tokens_as_asked() -> None:
    encode = ScriptTokenizer().encode_chat
    texts = [
        encode([{"role": "system", "content": ROBOT.prompt_text()}, {"role": "user", "content": t}])
        for t in (task_text(), "other words" + task_text(200))
    ]
    same = next(i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)
    assert (same, len(texts[0])) == (2774, 2884)
