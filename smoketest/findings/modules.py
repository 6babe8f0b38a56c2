"""Whole modules and functions to use instead of ops whose rewrite is more than a line: source that readers copy.

The tests run each on the CPU against the module it replaces, on the emulated device, where nothing of it may fall back,
and through the compile probe.
"""

from __future__ import annotations

from smoketest.findings.remedies import looked_up
from smoketest.findings.report import Finding

__all__ = ["MODULES", "module_for", "module_of"]

_ABOUT_AN_OP = ("NST101", "NST104", "NST201")

_LAYERS = '''\
# Covers num_layers, bidirectional, batch_first, bias, dropout, a given state.
# Does not cover PackedSequence (pad instead; a reverse direction then reads
# the padding first), nor input without a batch dimension{but}.
class {name}(torch.nn.Module):
    """nn.{name} as a loop over time: same arguments and state_dict."""

    def __init__(self, *args, **kwargs):
        super().__init__()
        like = torch.nn.{name}(*args, **kwargs)
        for name, parameter in like.named_parameters():
            self.register_parameter(name, parameter)
        self.layers, self.dropout = like.num_layers, like.dropout
        self.ways = 2 if like.bidirectional else 1
        self.size, self.batch_first = like.hidden_size, like.batch_first

    def forward(self, x, state=None):
        x = x.transpose(0, 1) if self.batch_first else x
        last = []
        for layer in range(self.layers):
            if layer and self.dropout:
                x = torch.dropout(x, self.dropout, self.training)
            made = [self.run(x, layer, i, state) for i in range(self.ways)]
            x = torch.cat([outputs for outputs, _ in made], -1)
            last += [final for _, final in made]
        x = x.transpose(0, 1) if self.batch_first else x
        return x, {last}

    def run(self, x, layer, way, state):
        """Outputs of one layer in one direction, and its last state."""
        suffix = f"_l{{layer}}" + ("_reverse" if way else "")
        w_ih, w_hh, b_ih, b_hh = (
            getattr(self, part + suffix, None)
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        steps = torch.nn.functional.linear(x, w_ih, b_ih).unbind(0)
        {first}
        outputs = []
        for step in reversed(steps) if way else steps:
            hidden = torch.nn.functional.linear(h, w_hh, b_hh)
{cell}
            outputs.append(h)
        return torch.stack(outputs[::-1] if way else outputs), {state}
'''

_LSTM = _LAYERS.format(
    name="LSTM",
    but=", nor proj_size",
    last="tuple(torch.stack(part) for part in zip(*last))",
    first="""zeros = x.new_zeros(x.shape[1], self.size)
        index = layer * self.ways + way
        given = [part.unbind(0)[index] for part in state] if state else None
        h, c = given or (zeros, zeros)""",
    cell="""\
            i, f, g, o = (step + hidden).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)""",
    state="(h, c)",
)
_GRU = _LAYERS.format(
    name="GRU",
    but="",
    last="torch.stack(last)",
    first="""h = x.new_zeros(x.shape[1], self.size)
        if state is not None:
            h = state.unbind(0)[layer * self.ways + way]""",
    cell="""\
            i_r, i_z, i_n = step.chunk(3, -1)
            h_r, h_z, h_n = hidden.chunk(3, -1)
            z = torch.sigmoid(i_z + h_z)
            n = torch.tanh(i_n + torch.sigmoid(i_r + h_r) * h_n)
            h = n + z * (h - n)""",
    state="h",
)

MODULES: dict[str, str] = {
    "_thnn_fused_lstm_cell": _LSTM,
    "_thnn_fused_gru_cell": _GRU,
    "native_batch_norm": '''\
# Covers BatchNorm1d, 2d and 3d, training and eval, with a number as momentum.
# Does not cover SyncBatchNorm: the statistics are those of one process.
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
        """Running statistics."""
        keep, unbiased = 1 - self.momentum, count / max(count - 1, 1)
        self.running_mean.mul_(keep).add_(self.momentum * mean)
        self.running_var.mul_(keep).add_(self.momentum * unbiased * var)
        self.num_batches_tracked.add_(1)
''',
    "grid_sampler_2d": '''\
# Covers mode="bilinear" with padding_mode "zeros" or "border", align_corners,
# and images in 4 dimensions. Does not cover other modes and paddings.
def grid_sample(image, grid, padding_mode="zeros", align_corners=False):
    """F.grid_sample: each point weighs the two rows and columns beside it."""
    c, h, w = image.shape[1:]
    x, y = (
        (v.float().flatten(1) + 1) * (size - 1) / 2
        if align_corners
        else ((v.float().flatten(1) + 1) * size - 1) / 2
        for v, size in ((grid[..., 0], w), (grid[..., 1], h))
    )
    if padding_mode == "border":
        x, y = x.clamp(0, w - 1), y.clamp(0, h - 1)
    rows, columns = (torch.arange(size, device=x.device) for size in (h, w))
    across, down = (
        torch.relu(-(v[:, None] - places[:, None]).abs() + 1).to(image.dtype)
        for v, places in ((x, columns), (y, rows))
    )
    blended = (image.flatten(1, 2) @ across).unflatten(1, (c, h))
    sampled = (blended * down[:, None]).sum(2)
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
