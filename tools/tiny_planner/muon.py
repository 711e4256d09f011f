"""Muon: momentum, then the nearest orthogonal matrix (Jordan et al. 2024, Newton-Schulz)."""

from __future__ import annotations

from collections.abc import Iterable

import torch

A, B, C = 3.4445, -4.775, 2.0315  # the quintic iteration's coefficients


class Muon(torch.optim.Optimizer):
    """Muon for weight matrices; matrices of one shape are worked on together."""

    def __init__(
        self, params: Iterable[torch.Tensor], lr: float, momentum: float = 0.95, decay: float = 0.05
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all matrices from their gradients."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[torch.Tensor]] = {}
            for matrix in group["params"]:
                shapes.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in shapes.items():
                self._update(shape, matrices, group)

    def _update(
        self, shape: torch.Size, matrices: list[torch.Tensor], group: dict[str, float]
    ) -> None:
        gradient = torch.stack([m.grad for m in matrices if m.grad is not None])
        state = self.state[matrices[0]]
        momentum = state.setdefault("momentum", torch.zeros_like(gradient))
        momentum.lerp_(gradient, 1 - group["momentum"])
        update = orthogonal(gradient.lerp(momentum, group["momentum"]))
        scale = 0.2 * max(shape) ** 0.5
        for matrix, direction in zip(matrices, update, strict=True):
            matrix.mul_(1 - group["decay"] * group["lr"])
            matrix.add_(direction, alpha=-group["lr"] * scale)


def orthogonal(stack: torch.Tensor) -> torch.Tensor:
    """Return about the nearest orthogonal matrix of each matrix in the stack."""
    tall = stack.shape[1] > stack.shape[2]
    x: torch.Tensor = stack.mT if tall else stack
    x = (x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)).bfloat16()
    for _ in range(5):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    result: torch.Tensor = x.mT if tall else x
    return result.to(stack.dtype)
