"""Which objects in our modules are vLLM's, and of which class: a syntax tree does not show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Facts:
    """What is declared of vLLM's objects.

    Attributes:
        classes: short name -> "module:class".
        members: class -> attribute or "method()" -> the class of its value; "X[]" holds X, "" is
            none of vLLM's.
        roots: module of ours ("" for all) -> expression -> class. "C:expression" only within C.
        own: module of ours -> expressions that are not vLLM's.
        own_attributes: class of ours -> attributes that it has beside those of its base.
        needed: class -> methods that we override and vLLM must have.
        returns: (class, method) -> how its result is annotated, where we take it apart.
        one_of: names of attributes of which a class needs one only, by class.
        guarded: (class, attribute) that we look for before we use it, and can do without.
        spelled: (class, attribute) that we name by a text, and cannot do without.
        calls: "module:expression" -> (class, method): functions that are kept under another name.
        receivers: class -> names under which vLLM itself calls the methods that we override.
        callers: class -> what the names of modules begin with that call these methods, as a
            regular expression; all modules, if it is not named.
        renamed: (module of ours, imported name) -> short name, where two classes have one name.
        options: module of ours -> class; a dictionary in the module names its fields.
        option_marks: keys that such a dictionary has.
    """

    classes: Mapping[str, str]
    members: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    roots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    own: Mapping[str, frozenset[str]] = field(default_factory=dict)
    own_attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    needed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    returns: Mapping[tuple[str, str], str] = field(default_factory=dict)
    one_of: Mapping[str, tuple[frozenset[str], ...]] = field(default_factory=dict)
    guarded: frozenset[tuple[str, str]] = frozenset()
    spelled: frozenset[tuple[str, str]] = frozenset()
    calls: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    receivers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    callers: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[tuple[str, str], str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    option_marks: frozenset[str] = frozenset()

    def member(self, owner: str, name: str) -> str | None:
        """Return the class of an object's attribute: "" for none, None if it is not known."""
        return self.members.get(owner, {}).get(name)
