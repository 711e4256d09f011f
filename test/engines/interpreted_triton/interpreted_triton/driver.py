"""The driver, which starts nothing."""

from __future__ import annotations

from typing import Any

from triton.backends.driver import DriverBase


class NoDriver(DriverBase):  # type: ignore[misc] # of a library that is not always there
    """Is there, and does nothing."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self) -> Any:
        raise NotImplementedError

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError

    def get_benchmarker(self) -> Any:
        raise NotImplementedError
