"""Parameters of the nodes: one table each, from which they are declared, checked and documented."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import ParameterException
from rclpy.node import Node

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
    """One parameter: what it means and what it may be."""

    name: str
    default: Value
    description: str
    low: float | None = None
    high: float = math.inf
    choices: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """The allowed numbers in words."""
        return f"from {self.low:g} to {self.high:g}"

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor: description, range, choices; read-only after the start."""
        # Types are checked in `declare`, which takes 30 for 30.0 and says what is wrong.
        descriptor = ParameterDescriptor(
            description=self.description, read_only=True, dynamic_typing=True
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
    values: dict[str, Any] = {}
    for parameter in parameters:
        try:
            value: Any = node.declare_parameter(
                parameter.name, parameter.default, parameter.descriptor()
            ).value
        except ParameterException as error:
            raise ConfigurationError(
                f"parameter {parameter.name} must be {parameter.range}"
            ) from error
        values[parameter.name] = _checked(parameter, value)
    return values


def _checked(parameter: Parameter, value: Any) -> Value:
    """Return a value in the parameter's type; a whole number will do for a decimal one."""
    kind: type[Any] = type(parameter.default)
    if kind is float and type(value) is int:
        value = float(value)
    if kind is list and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return list(value)
    if type(value) is not kind:
        raise ConfigurationError(
            f"parameter {parameter.name} must be {_KINDS[kind]}, not {value!r}"
        )
    if parameter.choices and value not in parameter.choices:
        choices = ", ".join(parameter.choices)
        raise ConfigurationError(
            f"parameter {parameter.name} must be one of {choices}, not {value!r}"
        )
    low = parameter.low
    if low is not None and not low <= value <= parameter.high:
        raise ConfigurationError(
            f"parameter {parameter.name} must be {parameter.range}, not {value!r}"
        )
    checked: Value = value
    return checked
