from timely_llm.policies.lengths import AnswerLengths


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
