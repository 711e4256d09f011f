"""Misspelt names of parameters and nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely_llm.core.errors import ConfigurationError
from timely_llm.ros.parameters import (
    files_in,
    matches,
    nearest,
    node_names,
    prefixes_in,
    strange_nodes,
    strange_prefixes,
    take,
    unknown,
)
from timely_llm.ros.server.setup import PARAMETERS

NAMES = [parameter.name for parameter in PARAMETERS]


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [
        ("polcy", "policy"),
        ("skill_set", "skill_sets"),
        ("max-tokens", "max_tokens"),
        ("Engine", "engine"),
        ("stats_period", "stats_period_s"),
    ],
)
def test_a_misspelt_parameter_is_logged_with_the_nearest(given_name: str, meant: str) -> None:
    assert list(unknown([given_name], NAMES)) == [
        f"parameter '{given_name}' is unknown and changes nothing: is '{meant}' meant?"
    ]


def test_parameters_of_ros_itself_are_no_mistakes() -> None:
    declared = [*NAMES, "use_sim_time", "start_type_description_service"]
    own = ["use_sim_time", "start_type_description_service", "qos_overrides./x.publisher.depth"]
    assert not list(unknown(own, declared))


def test_a_name_without_a_near_one_is_logged_too() -> None:
    assert list(unknown(["zzzzzz"], NAMES)) == [
        "parameter 'zzzzzz' is unknown and changes nothing: `ros2 param list` names those there are"
    ]


@given(st.sampled_from(NAMES), st.data())
def test_a_name_without_one_of_its_letters_is_known_again(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(name) - 1))
    misspelt = name[:place] + name[place + 1 :]
    if len(name) > 4 and misspelt not in NAMES:
        assert nearest(misspelt, NAMES)


@pytest.mark.parametrize(
    ("pattern", "node", "matched"),
    [
        ("plan_server", "/plan_server", True),
        ("/**", "/plan_server", True),
        ("/**", "/lab/plan_server", True),
        ("/*/plan_server", "/lab/plan_server", True),
        ("/**/plan_server", "/a/b/plan_server", True),
        ("/**/plan_server", "/plan_server", True),
        ("/*", "/plan_server", True),
        ("/lab/**", "/lab/plan_server", True),
        ("plan_server", "/lab/plan_server", False),
        ("plan", "/plan_server", False),
        ("/*", "/lab/plan_server", False),
        ("/lab/plan_server", "/labplan_server", False),
    ],
)
def test_entries_of_a_file_are_for_the_nodes_that_they_name(
    pattern: str, node: str, matched: bool
) -> None:
    assert matches(pattern, node) is matched


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plan_servr: {ros__parameters: {policy: fcfs}}", "is 'plan_servr' misspelt?"),
        ("lab: {plan_server: {ros__parameters: {policy: fcfs}}}", "parameters of '/lab/plan_serv"),
        ("plan_server: {policy: fcfs}", "parameters of no node"),
    ],
)
def test_a_file_without_the_nodes_parameters_is_logged(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    (sentence,) = strange_nodes([file], "/plan_server")
    assert words in sentence
    assert "none of this node, /plan_server" in sentence


def test_a_file_of_several_nodes_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("camera: {ros__parameters: {a: 1}}\n/**/plan_server: {ros__parameters: {}}")
    assert not list(strange_nodes([file], "/plan_server"))
    assert list(node_names({"a": {"b": {"ros__parameters": {}}}, "c": 3})) == ["/a/b"]


def test_a_prefix_that_is_almost_the_node_is_logged() -> None:
    args = ["x", "--ros-args", "-p", "plan_servr:policy:=fcfs", "--param", "robot_1:a:=b:c"]
    assert prefixes_in([*args, "-p", "a:=b:c"]) == ["plan_servr", "robot_1"]
    (sentence,) = strange_prefixes(prefixes_in(args), "/lab/plan_server")
    assert sentence.endswith("is 'plan_server' meant?")


def test_only_ros_arguments_name_parameter_files() -> None:
    ros = ["--ros-args", "--params-file", "b.yaml", "--", "--params-file", "c.yaml"]
    assert files_in(["--params-file", "a.yaml", *ros, "--ros-args", "--params-file"]) == [
        Path("b.yaml")
    ]


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no.yaml", "does not exist"), (tmp_path, "is not a file")):
        with pytest.raises(ConfigurationError, match=f"parameter file '{path}' {words}"):
            take(["--ros-args", "--params-file", str(path)])
