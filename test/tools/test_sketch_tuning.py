"""Tuning of sketches on tiny data; no model is tuned."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tools.sketch_tuning import (
    SketchPair,
    divergence,
    objective,
    preferences,
    reward_loss,
    reward_loss_slope,
    sft_lines,
    sketch_score,
)

ANSWER = "the robot turns left and then it stops"


def test_an_example_is_a_chat_with_the_sketch_as_its_answer() -> None:
    (line,) = sft_lines([("What does it do?", "robot left\nstops")])
    roles = {message["role"]: message["content"] for message in json.loads(line)["messages"]}
    assert roles["user"] == "What does it do?"
    assert roles["assistant"] == "robot left\nstops"


def test_a_score_adds_shortness_and_likeness() -> None:
    # 5 / 2 words, and 4 of 4 and of 8 words: F1 = 2/3.
    assert sketch_score("robot left", "the robot turns left", ANSWER) == pytest.approx(2.5 + 2 / 3)
    assert sketch_score("robot left", "x", ANSWER, 2.0, 9.0) == pytest.approx(1.0)
    assert sketch_score("", ANSWER, ANSWER) == -math.inf


def test_the_better_sketch_comes_first_and_equal_ones_are_left_out() -> None:
    short, long = ("robot left stops", ANSWER), ("the robot then left it stops", ANSWER)
    lost = ("robot", "bananas")
    made = preferences([("q", ANSWER, [long, short]), ("q", ANSWER, [short, short])])
    assert list(made) == [SketchPair("q", short[0], long[0])]
    (pair,) = preferences([("q", ANSWER, [lost, short])], length_weight=0.1)
    assert pair.better == short[0]


def test_the_loss_of_equal_rewards_is_log_2_and_large_ones_do_not_overflow() -> None:
    zero = np.zeros(3)
    assert reward_loss(zero, zero) == pytest.approx(math.log(2.0))
    assert reward_loss(np.array([1e4]), np.array([-1e4])) == 0.0
    assert reward_loss(np.array([-1e4]), np.array([1e4])) == 2e4


def test_the_slope_is_that_of_the_loss() -> None:
    better, worse = np.array([0.3, -1.0]), np.array([0.5, 0.2])
    step = np.array([1e-6, 0.0])
    measured = (reward_loss(better + step, worse) - reward_loss(better - step, worse)) / 2e-6
    assert reward_loss_slope(better, worse)[0] == pytest.approx(measured, rel=1e-5)


def test_a_linear_reward_learns_what_the_pairs_prefer() -> None:
    rng = np.random.default_rng(0)
    wanted = np.array([-1.0, 2.0])  # fewer words, more likeness
    one, other = rng.normal(size=(2, 200, 2))
    swap = (one @ wanted < other @ wanted)[:, None]
    better, worse = np.where(swap, other, one), np.where(swap, one, other)
    weights = np.zeros(2)
    for _ in range(100):
        slope = reward_loss_slope(better @ weights, worse @ weights)
        weights -= 5.0 * (slope @ (better - worse))
    assert np.mean(better @ weights > worse @ weights) > 0.97
    assert reward_loss(better @ weights, worse @ weights) < 0.15


def test_the_objective_weighs_reward_against_divergence() -> None:
    away = divergence(np.log([0.5, 0.5]), np.log([0.25, 0.5]))
    assert away == pytest.approx(math.log(2.0))
    rewards, divergences = np.array([1.0, 3.0]), np.array([away, 0.0])
    assert objective(rewards, divergences, 0.0) == 2.0
    assert objective(rewards, divergences, 0.5) == pytest.approx(1.0 - away / 4)
