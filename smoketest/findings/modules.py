"""Whole modules and functions to use instead of ops whose rewrite is more than a line: source that readers copy.

The tests run each on the CPU against the module it replaces, on the emulated device, where nothing of it may fall back,
and through the compile probe.
"""

from __future__ import annotations

from smoketest.findings.remedies import looked_up
from smoketest.findings.report import Finding

__all__ = ["MODULES", "module_for", "module_of"]

_ABOUT_AN_OP = ("NST101", "NST104", "NST201")

MODULES: dict[str, str] = {
    "native_batch_norm": '''\
class BatchNorm(torch.nn.BatchNorm2d):
    """nn.BatchNorm1d, 2d and 3d: same arguments and state_dict."""

    def forward(self, x):
        dims = (0, *range(2, x.dim()))
        shape = (1, -1) + (1,) * (x.dim() - 2)
        if self.training or self.running_mean is None:
            values = x.float()
            mean = values.mean(dims)
            centred = values - mean.view(shape)
            var = (centred * centred).mean(dims)
            if self.training and self.running_mean is not None:
                count = x.numel() / len(mean)
                self.update(mean.detach(), var.detach(), count)
        else:
            mean, var = self.running_mean, self.running_var
        scale = torch.rsqrt(var + self.eps)
        shift = -mean * scale
        if self.affine:
            scale = scale * self.weight
            shift = shift * self.weight + self.bias
        return (x * scale.view(shape) + shift.view(shape)).to(x.dtype)

    def update(self, mean, var, count):
        """Running statistics; momentum must be a number (the default)."""
        keep, unbiased = 1 - self.momentum, count / max(count - 1, 1)
        self.running_mean.mul_(keep).add_(self.momentum * mean)
        self.running_var.mul_(keep).add_(self.momentum * unbiased * var)
        self.num_batches_tracked.add_(1)
''',
    "grid_sampler_2d": '''\
def grid_sample(image, grid, padding_mode="zeros", align_corners=False):
    """F.grid_sample of mode bilinear; padding_mode is zeros or border."""
    c, h, w = image.shape[1:]
    x, y = (
        (v.float().flatten(1) + 1) * (size - 1) / 2
        if align_corners
        else ((v.float().flatten(1) + 1) * size - 1) / 2
        for v, size in ((grid[..., 0], w), (grid[..., 1], h))
    )
    if padding_mode == "border":
        x, y = x.clamp(0, w - 1), y.clamp(0, h - 1)
    across, down = (
        torch.relu(
            -(v[:, None] - torch.arange(size, device=v.device)[:, None]).abs() + 1
        ).to(image.dtype)
        for v, size in ((x, w), (y, h))
    )
    columns = (image.flatten(1, 2) @ across).unflatten(1, (c, h))
    sampled = (columns * down[:, None]).sum(2)
    return sampled.view(len(image), c, *grid.shape[1:3])
''',
}
"""By the functional op that the source does without; `torch` is all it imports."""


def module_for(op: str) -> str | None:
    """Source of a module or function that does without the op; None where a rewrite of a line or two is all there is.

    Args:
        op: an overload name in any of its forms; the backward of an op has the op's module.
    """
    return looked_up(op, MODULES)


def module_of(finding: Finding) -> str | None:
    """Source that does without the op that a finding is about, or without the op that its line calls."""
    ops = (finding.called_as, finding.op) if finding.rule in _ABOUT_AN_OP else ()
    return next((found for op in ops if op and (found := module_for(op))), None)
