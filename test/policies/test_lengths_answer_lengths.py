from test.policies.builders import generation, stream
from timely_llm.core.slo import REAL_TIME, TEXT
from timely_llm.core.time_utility import URGENT
from timely_llm.policies.lengths import AnswerLengths, task_type


def test_each_service_level_and_each_urgency_of_a_skill_set_is_a_type_of_task() -> None:
    streams = stream("a"), stream("b", of_class=TEXT), stream("c", of_class=REAL_TIME)
    plans = generation("d"), generation("e", utility=URGENT)
    types = [task_type(one.request) for one in (*streams, *plans)]
    assert types[0] == types[1]
    assert len({*types}) == 4


def test_lengths_of_answers_are_learned_and_bounded() -> None:
    lengths = AnswerLengths()
    assert lengths.to_go("text", 10, 100, 0.5) == 90
    for tokens in (10, 20, 30, 40, 50, 60, 70, 80):
        lengths.observe("text", tokens)
    assert lengths.to_go("text", 0, 100, 0.5) == 50
    assert lengths.to_go("text", 45, 100, 0.0) == 5, "only longer ones count"
    assert lengths.to_go("text", 0, 25, 0.5) == 25, "never more than was declared"
    assert lengths.to_go("text", 90, 100, 0.5) == 10
    assert lengths.to_go("text", 90, 1000, 0.5) == 23, "a quarter more, and one"
