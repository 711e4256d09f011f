"""Parameters are declared, described, ranged and checked."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rclpy.context import Context
from rclpy.parameter import Parameter as RosParameter

from timely_llm.core.errors import ConfigurationError
from timely_llm.ros.parameters import NodeParameter, check_changes, checked, declare
from timely_llm.ros.parameters_document import NODES, document

PARAMETERS = (
    NodeParameter("count", 3, "how many", 1, 10),
    NodeParameter("period_s", 0.5, "how long", 0.1, 60.0),
    NodeParameter("color", "red", "which", choices=("red", "blue")),
    NodeParameter("files", [""], "which files"),
)


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    rclpy.init(context=made, domain_id=91)
    yield made
    rclpy.shutdown(context=made)


def declared(context: Context, **overrides: Any) -> dict[str, Any]:
    given = [RosParameter(name, value=value) for name, value in overrides.items()]
    node = rclpy.create_node("parameters", context=context, parameter_overrides=given)
    try:
        return declare(node, PARAMETERS)
    finally:
        node.destroy_node()


def test_defaults_and_overrides(context: Context) -> None:
    assert declared(context) == {"count": 3, "period_s": 0.5, "color": "red", "files": [""]}
    assert declared(context, count=10, period_s=2, files=["a", "b"]) == {
        "count": 10, "period_s": 2.0, "color": "red", "files": ["a", "b"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"count": 11}, "parameter count must be from 1 to 10"),
        ({"count": "many"}, "parameter count must be a whole number, not 'many'"),
        ({"count": 2.5}, "parameter count must be a whole number, not 2.5"),
        ({"period_s": 0}, "parameter period_s must be from 0.1 to 60, not 0.0"),
        ({"color": "green"}, "parameter color must be one of red, blue, not 'green'"),
        ({"color": 3}, "parameter color must be a text, not 3"),
        ({"files": "a"}, "parameter files must be a list of texts, not 'a'"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(
    context: Context, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        declared(context, **overrides)
    assert str(raised.value) == message


@pytest.mark.parametrize("table", NODES.values(), ids=NODES)
def test_every_parameter_is_described_and_its_default_is_allowed(
    context: Context, table: tuple[NodeParameter, ...]
) -> None:
    node = rclpy.create_node("all_parameters", context=context)
    values = declare(node, table)
    for parameter in table:
        assert values[parameter.name] == parameter.default
        assert len(node.describe_parameter(parameter.name).description) > 10
    node.destroy_node()


def test_parameters_can_be_set_while_the_node_is_not_configured(context: Context) -> None:
    change = [RosParameter("count", value=4)]
    assert check_changes(PARAMETERS, change, True).successful
    refused = check_changes(PARAMETERS, change, False)
    assert "parameter count can be set only while the node is not configured" in refused.reason
    wrong = check_changes(PARAMETERS, [RosParameter("color", value="green")], True)
    assert wrong.reason == "parameter color must be one of red, blue, not 'green'"
    assert check_changes(PARAMETERS, [RosParameter("use_sim_time", value=True)], False).successful


OWN = (
    NodeParameter("policy", "edf", "which", choices=("edf", "fcfs"), reference="my_module:Mine"),
)


def test_what_names_code_is_taken_at_the_start_alone(context: Context) -> None:
    given = [RosParameter("policy", value="a_module:Policy")]
    node = rclpy.create_node("own", context=context, parameter_overrides=given)
    try:
        assert declare(node, OWN) == {"policy": "a_module:Policy"}
    finally:
        node.destroy_node()
    refused = check_changes(OWN, [RosParameter("policy", value="os:abort")], True)
    assert not refused.successful
    assert refused.reason == (
        "parameter policy must be one of edf, fcfs, or at the start your own: my_module:Mine, not"
        " 'os:abort'"
    )
    assert check_changes(OWN, [RosParameter("policy", value="fcfs")], True).successful


def test_off_is_a_choice_although_yaml_takes_it_for_false() -> None:
    rule = NodeParameter("rule", "cycle", "which", choices=("off", "cycle"))
    assert [checked(rule, value) for value in (False, "off", "cycle")] == ["off", "off", "cycle"]
    with pytest.raises(ConfigurationError, match="rule must be a text, not True"):
        checked(rule, True)
    with pytest.raises(ConfigurationError, match="color must be a text, not False"):
        checked(NodeParameter("color", "red", "which", choices=("red", "blue")), False)


def test_the_document_is_up_to_date() -> None:
    file = Path(__file__).resolve().parents[2] / "docs" / "parameters.md"
    written = file.read_text(encoding="utf-8")
    assert written == document(), (
        "run `python -m timely_llm.ros.parameters_document > docs/parameters.md`"
    )
