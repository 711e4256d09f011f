"""The compiler, which is never called."""

from __future__ import annotations

from typing import Any

from triton.backends.compiler import BaseBackend


class NoCompiler(BaseBackend):  # type: ignore[misc] # of a library that is not always there
    """Supports no target."""

    @staticmethod
    def supports_target(target: Any) -> bool:
        return False

    def hash(self) -> str:
        raise NotImplementedError

    def parse_options(self, options: Any) -> Any:
        raise NotImplementedError

    def add_stages(self, *args: Any) -> None:
        raise NotImplementedError

    def load_dialects(self, context: Any) -> None:
        raise NotImplementedError

    def get_module_map(self) -> Any:
        raise NotImplementedError
