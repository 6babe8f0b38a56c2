"""Whole modules to use instead of ops whose rewrite is more than a line: source that the reader copies.

The tests run each on the CPU against the module it replaces, on the emulated device, where nothing of it may fall back,
and through the compile probe.
"""

from __future__ import annotations

from smoketest.findings.remedies import looked_up

__all__ = ["MODULES", "module_for"]

MODULES: dict[str, str] = {
    "native_batch_norm": '''\
class BatchNorm(torch.nn.BatchNorm2d):
    """nn.BatchNorm2d from ops with kernels: same arguments and state_dict."""

    def forward(self, x):
        if self.training or self.running_mean is None:
            values = x.float()
            mean = values.mean((0, 2, 3))
            centred = values - mean.view(1, -1, 1, 1)
            var = (centred * centred).mean((0, 2, 3))
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
        scaled = x * scale.view(1, -1, 1, 1)
        return (scaled + shift.view(1, -1, 1, 1)).to(x.dtype)

    def update(self, mean, var, count):
        """Running statistics; momentum must be a number (the default)."""
        keep, unbiased = 1 - self.momentum, count / max(count - 1, 1)
        self.running_mean.mul_(keep).add_(self.momentum * mean)
        self.running_var.mul_(keep).add_(self.momentum * unbiased * var)
        self.num_batches_tracked.add_(1)
''',
}
"""By the functional op that the module does without; `torch` is all it imports."""


def module_for(op: str) -> str | None:
    """Source of a module that does without the op; None where a rewrite of a line or two is all there is to say.

    Args:
        op: an overload name in any of its forms; the backward of an op has the op's module.
    """
    return looked_up(op, MODULES)
