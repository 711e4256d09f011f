"""Parameters of the nodes: one table each, from which they are declared, checked and documented."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from timely_llm.core.echo import quoted
from timely_llm.core.errors import ConfigurationError

Value = bool | int | float | str | list[str]
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list of texts",
}


@dataclass(frozen=True)
class Parameter:
    """One parameter: what it means and what it may be.

    Attributes:
        fixed: read once, when the node starts; the others of a lifecycle node can be set while it
            is not configured.
    """

    name: str
    default: Value
    description: str
    low: float | None = None
    high: float = math.inf
    choices: tuple[str, ...] = ()
    fixed: bool = True

    @property
    def range(self) -> str:
        """The allowed numbers in words."""
        return f"from {_number(self.low)} to {_number(self.high)}"

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor: description, range, choices."""
        # Types are checked in `declare`, which takes 30 for 30.0 and says what is wrong.
        descriptor = ParameterDescriptor(
            description=self.description, read_only=self.fixed, dynamic_typing=True
        )
        if self.choices:
            descriptor.additional_constraints = f"one of {', '.join(self.choices)}"
        if self.low is not None:
            if isinstance(self.default, int):
                bounds = IntegerRange(from_value=int(self.low), to_value=int(self.high))
                descriptor.integer_range = [bounds]
            else:
                span = FloatingPointRange(from_value=float(self.low), to_value=float(self.high))
                descriptor.floating_point_range = [span]
        return descriptor


def declare(node: Node, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Declare the parameters on `node` and return their values by name.

    Raises:
        ConfigurationError: a value has the wrong type, is out of its range or is not a choice.
    """
    for parameter in parameters:
        try:
            node.declare_parameter(parameter.name, parameter.default, parameter.descriptor())
        except ParameterException as error:
            raise ConfigurationError(
                f"parameter {parameter.name} must be {parameter.range}"
            ) from error
    return read(node, parameters)


def read(node: Node, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Return the values that declared parameters have now, by name.

    Raises:
        ConfigurationError: as in `declare`.
    """
    return {p.name: checked(p, node.get_parameter(p.name).value) for p in parameters}


def check_changes(
    parameters: tuple[Parameter, ...], changes: list[RosParameter[Any]], open_now: bool
) -> SetParametersResult:
    """Return whether parameters may be set: while the node is not configured, to allowed values.

    Args:
        parameters: the node's table; others are none of its business.
        changes: what shall be set.
        open_now: the node is not configured.
    """
    table = {parameter.name: parameter for parameter in parameters}
    for change in changes:
        parameter = table.get(change.name)
        if parameter is None:
            continue
        if not open_now:
            reason = (
                f"parameter {change.name} can be set only while the node is not configured:"
                " `ros2 lifecycle set NODE cleanup` first"
            )
            return SetParametersResult(successful=False, reason=reason)
        try:
            checked(parameter, change.value)
        except ConfigurationError as error:
            return SetParametersResult(successful=False, reason=str(error))
    return SetParametersResult(successful=True)


def _number(number: float | None) -> str:
    """Return a number without an exponent, and without decimals that say nothing."""
    return f"{number:f}".rstrip("0").rstrip(".")


def checked(parameter: Parameter, value: Any) -> Value:
    """Return a value in the parameter's type; a whole number will do for a decimal one.

    Raises:
        ConfigurationError: it has the wrong type, is out of range or is not a choice.
    """
    kind: type[Any] = type(parameter.default)
    if kind is float and type(value) is int:
        value = float(value)
    if kind is list and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return list(value)
    if type(value) is not kind:
        raise ConfigurationError(
            f"parameter {parameter.name} must be {_KINDS[kind]}, not {quoted(value)}"
        )
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(parameter.choices)
        raise ConfigurationError(
            f"parameter {parameter.name} must be one of {choices}, not {quoted(value)}"
        )
    low = parameter.low
    if low is not None and not low <= value <= parameter.high:
        raise ConfigurationError(
            f"parameter {parameter.name} must be {parameter.range}, not {quoted(value)}"
        )
    good: Value = value
    return good
