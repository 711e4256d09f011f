"""Parameters of the nodes: one table a node, which declares, checks and documents them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from timely_llm.core.errors import ConfigurationError
from timely_llm.core.object_reference import is_reference
from timely_llm.core.text import listed, quoted

NodeParameterValue = bool | int | float | str | list[str]
_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list of texts",
}


@dataclass(frozen=True)
class NodeParameter:
    """One parameter: its meaning and its allowed values.

    Attributes:
        low, high: the allowed numbers; None: all.
        choices: the allowed texts; empty: all.
        reference: form of a user's own value beside `choices`, such as my_module:MyPolicy; empty:
            none is allowed. Naming one runs its module, so it is allowed at the start only.
        fixed: read once, when the node starts; other parameters of a lifecycle node can be set
            while it is not configured.
    """

    name: str
    default: NodeParameterValue
    description: str
    low: float | None = None
    high: float = math.inf
    choices: tuple[str, ...] = ()
    reference: str = ""
    fixed: bool = True

    @property
    def range(self) -> str:
        """Return the allowed numbers in words."""
        return f"from {_number(self.low)} to {_number(self.high)}"

    @property
    def listed(self) -> str:
        """Return the choices in words."""
        own = f", or at the start your own: {self.reference}" if self.reference else ""
        return ", ".join(self.choices) + own

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor: description, range, choices."""
        # `declare` checks types itself: it takes 30 for 30.0, and its errors name the value.
        descriptor = ParameterDescriptor(
            description=self.description, read_only=self.fixed, dynamic_typing=True
        )
        if self.choices:
            descriptor.additional_constraints = f"one of {self.listed}"
        if self.low is not None:
            if isinstance(self.default, int):
                bounds = IntegerRange(from_value=int(self.low), to_value=int(self.high))
                descriptor.integer_range = [bounds]
            else:
                span = FloatingPointRange(from_value=float(self.low), to_value=float(self.high))
                descriptor.floating_point_range = [span]
        return descriptor


OFF = "off"
"""A choice that ROS reads as false, since its parameters are YAML 1.1."""
SERVER = NodeParameter("server", "plan_server", "name of the plan server's node")


def declare(node: Node, parameters: tuple[NodeParameter, ...]) -> dict[str, Any]:
    """Declare the parameters on `node` and return their values by name.

    A given parameter that is not declared is logged, with the nearest name.

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
    warn_of_unknown(node)
    return read(node, parameters)


def read(node: Node, parameters: tuple[NodeParameter, ...]) -> dict[str, Any]:
    """Return the present values of declared parameters, by name.

    Raises:
        ConfigurationError: as in `declare`.
    """
    return {p.name: checked(p, node.get_parameter(p.name).value) for p in parameters}


def check_changes(
    parameters: tuple[NodeParameter, ...], changes: list[RosParameter[Any]], open_now: bool
) -> SetParametersResult:
    """Return whether parameters may be set: while the node is not configured, to allowed values.

    Args:
        parameters: the node's table; changes of other parameters are allowed.
        changes: the changes.
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
                " `ros2 lifecycle set NODE deactivate`, then `cleanup`"
            )
            return SetParametersResult(successful=False, reason=reason)
        try:
            checked(parameter, change.value, at_start=False)
        except ConfigurationError as error:
            return SetParametersResult(successful=False, reason=str(error))
    return SetParametersResult(successful=True)


def _number(number: float | None) -> str:
    """Return a number without an exponent and without trailing zeros."""
    return f"{number:f}".rstrip("0").rstrip(".")


def checked(parameter: NodeParameter, value: Any, at_start: bool = True) -> NodeParameterValue:
    """Return a value in the parameter's type; a whole number is allowed for a decimal one.

    Args:
        parameter: the parameter.
        value: the given value.
        at_start: it was given at the node's start; any node can set a parameter later.

    Raises:
        ConfigurationError: the value has the wrong type, is out of range or is not a choice.
    """
    kind: type[Any] = type(parameter.default)
    if kind is float and type(value) is int:
        value = float(value)
    if value is False and OFF in parameter.choices:
        value = OFF
    if kind is list and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return list(value)
    if type(value) is not kind:
        raise ConfigurationError(
            f"parameter {parameter.name} must be {_KINDS[kind]}, not {quoted(value)}"
        )
    own = bool(parameter.reference) and at_start and is_reference(str(value))
    if parameter.choices and value not in parameter.choices and not own:
        raise ConfigurationError(
            f"parameter {parameter.name} must be one of {parameter.listed}, not {quoted(value)}"
        )
    low = parameter.low
    if low is not None and not low <= value <= parameter.high:
        raise ConfigurationError(
            f"parameter {parameter.name} must be {parameter.range}, not {quoted(value)}"
        )
    good: NodeParameterValue = value
    return good


OPTION, END = "--params-file", "--"
PARAMETERS = "ros__parameters"
QOS = "qos_overrides."
LIKE, ALIKE = 0.6, 0.75
"""Shares of equal letters from which on two names are near, and almost the same."""
_files: list[Path] = []
_prefixes: list[str] = []


def take(args: Sequence[str] | None) -> None:
    """Record the parameter files of a process.

    Args:
        args: the process's arguments; None: those of the program.

    Raises:
        ConfigurationError: a file does not exist, or cannot be read.
    """
    words = sys.argv if args is None else args
    _prefixes[:] = prefixes_in(words)
    _files[:] = files_in(words)
    for file in _files:
        if not file.is_file():
            what = "is not a file" if file.exists() else "does not exist"
            raise ConfigurationError(f"the parameter file {quoted(str(file))} {what}")
        try:
            file.read_bytes()
        except OSError as error:
            problem = f"{quoted(str(file))} cannot be read: {error.strerror}"
            raise ConfigurationError(f"the parameter file {problem}") from error


def files_in(args: Sequence[str]) -> list[Path]:
    """Return the parameter files that ROS arguments name."""
    files, ros = [], False
    for word, following in zip(args, (*args[1:], ""), strict=False):
        if word == "--ros-args":
            ros = True
        elif word == END:
            ros = False
        elif ros and word == OPTION and following:
            files.append(Path(following))
    return files


def warn_of_unknown(node: Node) -> None:
    """Log a warning for each given name that is no parameter of the node."""
    given: dict[str, Any] = node._parameter_overrides  # rclpy has no other access to them
    for sentence in (
        *unknown(given, node._parameters),
        *strange_nodes(_files, node.get_fully_qualified_name()),
        *strange_prefixes(_prefixes, node.get_fully_qualified_name()),
    ):
        node.get_logger().warning(sentence)


def unknown(given: Iterable[str], declared: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each given name that is not declared."""
    known = set(declared)
    names = sorted(name for name in known if not name.startswith(QOS))
    for name in sorted(given):
        if name not in known and not name.startswith(QOS):
            meant = nearest(name, names)
            yield f"parameter {quoted(name)} is unknown and changes nothing" + (
                f": is {meant!r} meant?" if meant else ": `ros2 param list` names those there are"
            )


def strange_nodes(files: Iterable[Path], node: str) -> Iterator[str]:
    """Yield a sentence for each parameter file without parameters of a node.

    Args:
        files: the parameter files.
        node: full name of the node.
    """
    for file in files:
        try:
            names = list(node_names(yaml.safe_load(file.read_text())))
        except (OSError, ValueError, yaml.YAMLError):
            continue  # ROS has reported the fault
        if any(matches(name, node) for name in names):
            continue
        found = listed([quoted(name) for name in names], 4) if names else "no node"
        meant = nearest(node.rpartition("/")[2], [name.rpartition("/")[2] for name in names])
        yield (
            f"the parameter file {quoted(str(file))} has parameters of {found} and none of this"
            f" node, {node}" + (f": is {meant!r} misspelt?" if meant else "")
        )


def strange_prefixes(prefixes: Iterable[str], node: str) -> Iterator[str]:
    """Yield a sentence for each `-p NODE:NAME:=VALUE` with almost the name of this node.

    A process may have several nodes, so another name alone is no mistake.
    """
    own = node.rpartition("/")[2]
    for prefix in prefixes:
        if not prefix.startswith("/") and prefix != own and nearest(prefix, [own], ALIKE):
            yield (
                f"a parameter is given to a node {quoted(prefix)}, which is not this one:"
                f" is {own!r} meant?"
            )


def prefixes_in(args: Sequence[str]) -> list[str]:
    """Return the names of nodes in the parameters of ROS arguments."""
    pairs = pairwise(args)
    rules = [rule.partition(":=")[0] for word, rule in pairs if word in ("-p", "--param")]
    return [rule.partition(":")[0] for rule in rules if ":" in rule]


def node_names(document: object, above: str = "") -> Iterator[str]:
    """Yield the names of the nodes in a parameter file, with their namespaces."""
    if not isinstance(document, dict):
        return
    for key, inner in document.items():
        if key == PARAMETERS:
            yield above
        else:
            yield from node_names(inner, f"{above.rstrip('/')}/{str(key).strip('/')}")


def matches(pattern: str, node: str) -> bool:
    """Return whether an entry of a parameter file is for a node: * is one name, ** any names."""
    expression = "".join(
        "(/[^/]+)*" if word == "**" else "/[^/]+" if word == "*" else f"/{re.escape(word)}"
        for word in pattern.strip("/").split("/")
    )
    return re.fullmatch(expression, node) is not None


def nearest(name: str, names: Iterable[str], like: float = LIKE) -> str:
    """Return the nearest of several names; empty: none is near."""
    by_plain = {_plain(known): known for known in names}
    found = get_close_matches(_plain(name), by_plain, 1, like)
    return by_plain[found[0]] if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
