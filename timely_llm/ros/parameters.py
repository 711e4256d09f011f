"""Parameters of the nodes: one table each, from which they are declared, checked and documented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, ParameterException
from rclpy.node import Node

from timely_llm.core.errors import RequestError

Value = bool | int | float | str | list[str]
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number with a decimal point",
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
    high: float | None = None
    choices: tuple[str, ...] = ()

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor: description, range, choices; read-only after the start."""
        descriptor = ParameterDescriptor(description=self.description, read_only=True)
        if self.choices:
            descriptor.additional_constraints = f"one of {', '.join(self.choices)}"
        if self.low is not None and self.high is not None:
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
        RequestError: a value has the wrong type, is out of its range or is not a choice.
    """
    values: dict[str, Any] = {}
    for parameter in parameters:
        try:
            declared = node.declare_parameter(
                parameter.name, parameter.default, parameter.descriptor()
            )
        except InvalidParameterTypeException as error:
            kind = _KINDS[type(parameter.default)]
            raise RequestError(f"parameter {parameter.name} must be {kind}") from error
        except ParameterException as error:
            allowed = f"from {parameter.low:g} to {parameter.high:g}" if parameter.low is not None else ""
            raise RequestError(f"parameter {parameter.name} must be {allowed}: {error}") from error
        value = declared.value
        if parameter.choices and value not in parameter.choices:
            raise RequestError(
                f"parameter {parameter.name} must be {parameter.descriptor().additional_constraints},"
                f" not {value!r}"
            )
        values[parameter.name] = list(value) if isinstance(parameter.default, list) else value
    return values
