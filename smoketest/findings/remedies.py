"""What to write instead of an op that has no kernel or does not lower, keyed by the functional op.

A rewrite covers the op's arguments, or says which it does not. Its first piece of code is run by the tests, on the
CPU against the op it replaces and on the emulated device, where neither its forward nor its backward may fall back.
Advice is what there is to say where no rewrite of a line or two is good. The rewrites use kernels of the pre-release
list only ([PRE] operator registry of April 2026), and follow what people porting models to the device did ([USER]
remedies used in the field).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from smoketest.findings.identity import functional_base

__all__ = [
    "ADVICE",
    "LINALG_UNCHECKED",
    "LOWERS_WITH",
    "REWRITES",
    "RUNS_IN",
    "is_rewrite",
    "looked_up",
    "remedy_at",
    "remedy_for",
]

RUNS_IN = "torch-neuronx-prerelease-2026-04"
"""The operator profile that has kernels for every op of the rewrites' first pieces of code; a test holds that."""

LOWERS_WITH = "torch-mlir 20261001"
"""What lowers every op of them; the same test."""

LINALG_UNCHECKED = (
    "Use the form that leaves its error code on the device: `torch.linalg.solve_ex`, `inv_ex`, `cholesky_ex`,"
    " `lu_factor_ex`, each with a result `info`."
)
"""Of `aten::_linalg_check_errors`, which reads the error code on the host and is no part of the computation."""

REWRITES: dict[str, str] = {
    # Angles and vectors
    "atan2": "Where x and y are not both 0, use the angle's cosine and sine instead of the angle: `x * torch.rsqrt(x"
    " * x + y * y)` is cos(atan2(y, x)), with y in front it is the sine; multiples of the angle follow by recurrence.",
    "acos": "Keep the cosine c instead of the angle: `torch.sqrt(-c * c + 1)` is sin(acos(c)); multiples of the angle"
    " follow by recurrence.",
    "asin": "Keep the sine s instead of the angle: `torch.sqrt(-s * s + 1)` is cos(asin(s)).",
    "atan": "Use the angle's sine and cosine: `t * torch.rsqrt(t * t + 1)` is sin(atan(t)), and the reciprocal root"
    " alone is its cosine.",
    "tan": "Write `torch.sin(x) / torch.cos(x)`.",
    "sinh": "Write `(torch.exp(x) - torch.exp(-x)) / 2`.",
    "cosh": "Write `(torch.exp(x) + torch.exp(-x)) / 2`.",
    "asinh": "Write `torch.log(x + torch.sqrt(x * x + 1))` for x >= 0; the function is odd.",
    "acosh": "Write `torch.log(x + torch.sqrt(x * x - 1))`.",
    "atanh": "Write `torch.log((x + 1) / (-x + 1)) / 2`.",
    "hypot": "Write `torch.sqrt(x * x + y * y)`.",
    "linalg_cross": "Write it out, here along the last dimension: `torch.stack((a1 * b2 - a2 * b1, a2 * b0 - a0 * b2,"
    " a0 * b1 - a1 * b0), -1)` with a0, a1, a2 = a.unbind(-1), and b likewise; of another dim put it in place of both"
    " -1.",
    "_cdist_forward": "For p=2, and with ord=p for another p of 1 or more: write `torch.linalg.vector_norm(a[...,"
    " :, None, :] - b[..., None, :, :], dim=-1)`; it takes memory for all differences. Of pdist the result is the part"
    " of it above the diagonal, with b = a.",
    "linalg_matrix_exp": "Take the series of x / 2**s and square it s times, s so large that the entries' absolute"
    " values add up to less than 1/2 in every row: `eye + a @ (eye + a / 2 @ (eye + a / 3 @ (eye + a / 4 @ (eye + a /"
    " 5 @ (eye + a / 6 @ (eye + a / 7))))))` with a = x / 2**s and eye = torch.eye(n), then y = y @ y, s times. s is a"
    " fixed number: take it for the largest x there will be. For an antisymmetric 3 x 3 matrix (a rotation) write"
    " Rodrigues' formula out.",
    # Exponentials and logarithms
    "exp2": "Write `torch.exp(x * 0.6931471805599453)`.",
    "expm1": "Write `torch.tanh(x / 2) * (torch.exp(x) + 1)`, which keeps the digits near zero.",
    "log1p": "Write `torch.log(x + 1)` where x is not tiny (below about 1e-3 it loses digits); log1p(exp(x)) is"
    " F.softplus(x).",
    "log2": "Write `torch.log(x) * 1.4426950408889634`.",
    "log10": "Write `torch.log(x) * 0.4342944819032518`.",
    "logaddexp": "Write `x + F.softplus(y - x)`.",
    "_logcumsumexp": "Along the last dimension (another dim goes in place of both -1):"
    " `torch.log(torch.cumsum(torch.exp(x - m), -1)) + m` with m = x.amax(-1, keepdim=True); leading terms about 80"
    " below the maximum vanish.",
    "logit": "Write `torch.log(p / (-p + 1))`; with eps= put `p.clamp(eps, 1 - eps)` in place of p.",
    "xlogy": "For y > 0 write `torch.where(x == 0, torch.zeros_like(x), x * torch.log(y))`. At x == 0 and y == 0 the"
    " value is right and the gradient is nan: clamp y from below first.",
    "erfc": "Write `-torch.erf(x) + 1`; beyond x = 3 it loses digits.",
    "lgamma": "For x > 0 use Stirling's series at z = x + 5, good to about 1e-6:"
    " `(z - 0.5) * torch.log(z) - z + 0.91893853 + 1 / (12 * z) - 1 / (360 * z**3)"
    " - torch.log(x * (x + 1) * (x + 2) * (x + 3) * (x + 4))`.",
    "digamma": "For x > 0 use its series at z = x + 5, good to about 1e-5: `torch.log(z) - 0.5 / z - 1 / (12 * z * z)"
    " + 1 / (120 * z**4) - 1 / x - 1 / (x + 1) - 1 / (x + 2) - 1 / (x + 3) - 1 / (x + 4)`.",
    "pow": "A number above 0 to the power of a tensor: write `torch.exp(x * math.log(base))`.",
    # Rounding and comparing
    "floor": "Write `-torch.ceil(-x)`.",
    "round": "To whole numbers: write `-torch.ceil(-x - 0.5)`; halves go up instead of to the even neighbour. With"
    " decimals= do it to x * 10**decimals, and divide after.",
    "frac": "Write `x - torch.trunc(x)`.",
    "fmod": "Write `x - y * torch.trunc(x / y)`.",
    "rsub": "Write `-(x - y)`; with alpha= it is `-(x * alpha - y)`.",
    "maximum": "Write `x.clamp(min=y)`; where both are equal the gradient goes to one side instead of half to each.",
    "minimum": "Write `x.clamp(max=y)`; where both are equal the gradient goes to one side instead of half to each.",
    "argmax": "Along one dim (another goes in place of -1; keepdim= goes to max): write `x.max(-1).indices`. Without"
    " dim take x.flatten() first. Which of several equal maxima it names is not promised, as of argmax.",
    "argmin": "Along one dim (another goes in place of -1; keepdim= goes to max): write `(-x).max(-1).indices`."
    " Without dim take x.flatten() first. Which of several equal minima it names is not promised, as of argmin.",
    "min": "Along one dim (another goes in place of -1; keepdim= goes along): write `x.amin(-1)`, or for the places"
    " `(-x).max(-1).indices`. Over all dims it is `x.amin()`, of two tensors `x.clamp(max=y)`. Where minima are equal,"
    " amin shares the gradient among them and min gives it to one.",
    "median": "The values along the last dimension (keepdim= goes to amin; the indices are not covered, nor is nan):"
    " write `torch.topk(x, n - (n - 1) // 2).values.amin(-1)` with n = x.shape[-1]. Without dim take x.flatten()"
    " first.",
    "kthvalue": "The values along the last dimension (another dim is moved to the end first; keepdim= goes to amin; the"
    " indices are not covered): write `torch.topk(x, n - k + 1).values.amin(-1)` with n = x.shape[-1].",
    "sort": "Sort along the last dimension with topk: `-torch.topk(-x, x.shape[-1]).values` ascends, and .indices is"
    " the order; for descending=True it is `torch.topk(x, x.shape[-1]).values`. For another dim move it to the end"
    " with movedim, and back after. It is not stable: of equal values the indices come in another order than sort's."
    " Integers must be cast to float. Where only the first k count, ask topk for k.",
    "searchsorted": "With few boundaries count them: `(edges[..., None, :] < x[..., None]).sum(-1)`; with right=True"
    " or side='right' `(edges[..., None, :] <= x[..., None]).sum(-1)`. Both are for edges of one dimension and for"
    " batched ones. With sorter= sort the edges by it first.",
    "bucketize": "With few boundaries count them: `(edges < x[..., None]).sum(-1)`; with right=True (right=False of"
    " numpy.digitize) `(edges <= x[..., None]).sum(-1)`.",
    "isin": "With few values compare with each: `(x[..., None] == values.flatten()).any(-1)`; with invert=True"
    " `(x[..., None] != values.flatten()).all(-1)`.",
    "equal": "For tensors of one shape write `(x == y).all()` and keep the result on the device.",
    "count_nonzero": "Write `(x != 0).sum()`; dim= goes to sum.",
    # Reductions
    "prod": "For x > 0 and one dim (another goes in place of -1; keepdim= goes to sum): write"
    " `torch.exp(torch.log(x).sum(-1))`; over a few entries, and where there are zeros or negative ones, multiply"
    " x.unbind(-1).",
    "cumprod": "For x > 0 alone, and one dim (another goes in place of -1): write"
    " `torch.exp(torch.cumsum(torch.log(x), -1))`. At x == 0 its gradient is nan, and below 0 the value too. Where"
    " such entries occur and the dimension is short, multiply x.unbind(-1) one after another and torch.stack the"
    " products.",
    "var": "Along one dim with correction 1 (a tuple of dims goes in place of both -1, and then the product of their"
    " sizes for x.shape[-1]; correction=0 or unbiased=False: no - 1; keepdim= goes to sum): write `((x - x.mean(-1,"
    " keepdim=True)) ** 2).sum(-1) / (x.shape[-1] - 1)`; its root is the deviation.",
    "trace": "Write `(x * torch.eye(*x.shape, device=x.device)).sum()`.",
    "nansum": "Write `torch.where(torch.isnan(x), torch.zeros_like(x), x).sum()`; dim= and keepdim= go to sum.",
    "nan_to_num": "Write `torch.where(torch.isnan(x), torch.zeros_like(x), x).clamp(low, high)` with low, high ="
    " torch.finfo(x.dtype).min, torch.finfo(x.dtype).max; nan= goes in place of the zeros, as torch.full_like(x, nan)."
    " posinf= and neginf= are not covered: they take a torch.where of their own.",
    "norm": "Write `torch.linalg.vector_norm(x, p, -1)`; dim= in place of -1, and keepdim= goes along. Of"
    " F.pairwise_distance(a, b) it is that of x = a - b + 1e-6, and of F.triplet_margin_loss torch.relu(near - far +"
    " margin).mean(), near and far being two such distances.",
    "vdot": "For real tensors write `torch.dot(x, y)`, which is the same. In spectral_norm the line is PyTorch's own:"
    " write that parametrization with torch.dot, or accept it under gate.allow.",
    # Indexing, scattering, shapes
    "scatter_reduce": "A sum with one target for each row of src: `out.index_add(0, index, src)`, or a selection"
    " matrix times src; dim= in place of 0. Of include_self=False it is `torch.zeros_like(out).index_add(0, index,"
    " src)`, which leaves 0 in rows without a source, where the op leaves what out holds. With a target for each"
    " entry, in a matrix and along 0: `out.flatten().index_add(0, (index * out.shape[1] + torch.arange(index.shape[1],"
    " device=index.device)).flatten(), src.flatten()).view_as(out)`. A mean is the sum divided by the counts, made in"
    " the same way from ones (include_self=True counts out's own value). For prod, amax and amin there is no short"
    " rewrite: give every row the same number of (padded) sources and take src[neighbours].amax(1).",
    "index_fill": "Rows of a matrix (dim 0) are filled by a mask: `x.masked_fill((torch.arange(x.shape[0],"
    " device=x.device)[:, None] == index).any(1)[:, None], value)`; for another dim the mask is of its size and put"
    " along it. A mask that does not change is better made once.",
    "repeat_interleave": "Make the index once on the CPU, index = torch.repeat_interleave(torch.arange(n), repeats),"
    " and in the step take `x.index_select(0, index)`; dim= in place of 0. Without dim take x.flatten() first.",
    "roll": "For one dim, any shift: `torch.cat((x.narrow(dim, n - k, k), x.narrow(dim, 0, n - k)), dim)` with n ="
    " x.shape[dim] and k = shift % n. Of several dims do it once for each; without dims to x.flatten(), and view_as(x)"
    " after.",
    "take": "Write `x.flatten().index_select(0, index.flatten()).view_as(index)`.",
    "bincount": "With a known number of bins, more than the largest id: `torch.zeros(n,"
    " device=ids.device).index_add(0, ids, torch.ones(ids.shape, device=ids.device))`; weights= go in place of the"
    " ones. It gives floats: where whole numbers are needed, as by split(), put `.long()` behind it.",
    "masked_select": "Keep the size and mask instead: `torch.where(mask, x, torch.zeros_like(x)).sum() / mask.sum()`"
    " is the mean over the selected entries. The list of them, of a length not known beforehand, is not covered.",
    "baddbmm": "Write `beta * x + alpha * (a @ b)`.",
    "addbmm": "Write `beta * x + alpha * (a @ b).sum(0)`.",
    "im2col": "Cut square patches by a convolution with an identity kernel: `F.conv2d(x, eye.view(-1, c, k, k),"
    " stride=s).flatten(2)` with eye = torch.eye(c * k * k) kept as a buffer; padding= and dilation= go to conv2d."
    " F.fold is its transpose: `F.conv_transpose2d(columns.unflatten(2, (rows, -1)), eye.view(-1, c, k, k),"
    " stride=s)`, rows being the number of patches from top to bottom; padding= and dilation= go along, and"
    " output_padding= is what size the stride leaves over.",
    "unfold": "Along the last dimension: `x.index_select(-1, index.flatten()).unflatten(-1, index.shape)` with"
    " index = torch.arange(n).unfold(0, size, step).contiguous(), made once on the CPU and kept as a buffer; the"
    " backward of unfold has no kernel. Of another dim move it to the end first.",
    "reflection_pad1d": "For one dim, the last, with at least 1 on either side: `torch.cat((x[..., 1 : left +"
    " 1].flip(-1), x, x[..., -right - 1 : -1].flip(-1)), -1)`, and likewise for each other dimension: the backward of"
    " the padding op has no kernel.",
    # Activations
    "_prelu_kernel": "Write `torch.relu(x) - w * torch.relu(-x)`; with a weight per channel w is"
    " weight.view(-1, 1, 1) for images, and for nn.PReLU a module of your own does it.",
    "leaky_relu": "Write `torch.relu(x) - slope * torch.relu(-x)`.",
    "elu": "Write `scale * (torch.relu(x) + alpha * (torch.exp(-torch.relu(-x) * slope) - 1))`. In ELU scale and slope"
    " are 1; in SELU scale is 1.0507009873554805, alpha 1.6732632423543772 and slope 1; in CELU scale is 1 and slope"
    " 1 / alpha.",
    "hardtanh": "Write `x.clamp(low, high)`; ReLU6 is x.clamp(0, 6). At the limits clamp passes the gradient on and"
    " hardtanh does not.",
    "hardswish": "Write `x * (x + 3).clamp(0, 6) / 6`, or use SiLU.",
    "hardsigmoid": "Write `(x / 6 + 0.5).clamp(0, 1)`.",
    "mish": "Write `x * torch.tanh(F.softplus(x))`.",
    "glu": "Write `a * torch.sigmoid(b)` with a, b = x.chunk(2, -1); dim= in place of -1.",
    "log_sigmoid_forward": "Write `-F.softplus(-x)`.",
    "softshrink": "Write `torch.relu(x - cut) - torch.relu(-x - cut)`.",
    "hardshrink": "Write `torch.where(x.abs() > cut, x, torch.zeros_like(x))`.",
    "fake_quantize_per_tensor_affine_cachemask": "For a scale that is not learned: `c + (-torch.ceil(-c / scale -"
    " 0.5) * scale - c).detach()` with c = x.clamp((low - zero_point) * scale, (high - zero_point) * scale), low and"
    " high being quant_min and quant_max; per channel, scale and zero_point are viewed along the axis. Halves go up"
    " instead of to the even neighbour, and the gradient ends at the limits, half a step before the op's. The"
    " observer's moving minimum and maximum, and gradients by scale, are not covered: write these in the same way,"
    " with scale not detached, or train in bfloat16 and quantize after.",
    # Losses
    "mse_loss": "Write `((x - y) ** 2).mean()`; of reduction='sum' it is .sum(), of 'none' neither. weight= goes"
    " before the sum, and of the mean the sum is divided by weight's own.",
    "smooth_l1_loss": "For beta above 0 write `torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta).mean()` with"
    " d = (x - y).abs(); of reduction='sum' it is .sum(), of 'none' neither. Of beta=0 it is d.",
    "huber_loss": "Write `torch.where(d < delta, 0.5 * d * d, delta * (d - 0.5 * delta)).mean()` with d = (x -"
    " y).abs(); of reduction='sum' it is .sum(), of 'none' neither. weight= is not covered.",
    "binary_cross_entropy": "Drop the sigmoid and take the loss from the logits: `(F.softplus(x) - x * y).mean()`; of"
    " reduction='sum' it is .sum(), of 'none' neither, and with weight= `((F.softplus(x) - x * y) * weight).mean()`."
    " The op cuts logarithms off at -100, this does not.",
    "binary_cross_entropy_with_logits": "Write `(F.softplus(x) - x * y).mean()`; of reduction='sum' it is .sum(), of"
    " 'none' neither, with weight= `((F.softplus(x) - x * y) * weight).mean()`, and with pos_weight= `((-y + 1) * x +"
    " ((pos_weight - 1) * y + 1) * F.softplus(-x)).mean()`.",
    "nll_loss2d_forward": "Flatten the pixels first: `F.cross_entropy(x.movedim(1, -1).flatten(0, -2), y.flatten())`;"
    " weight=, ignore_index=, label_smoothing= and reduction= go along (of reduction='none' view the result as y). Of"
    " log-probabilities it is F.nll_loss.",
    # Normalization, pooling, resampling
    "native_batch_norm": "A newer release may have the kernel: check there first. Else take the whole module in"
    " report.md (or of smoketest explain native_batch_norm). Its heart:"
    " `(x - m) * torch.rsqrt(((x - m) ** 2).mean(dims, keepdim=True) + eps)` with dims = (0, *range(2, x.dim())) and"
    " m = x.mean(dims, keepdim=True), then weight and bias; for InstanceNorm leave the 0 out of dims.",
    "native_group_norm": "Write `F.layer_norm(x.reshape(n, groups, -1), (x[0].numel() // groups,),"
    " eps=eps).view(x.shape)`, then weight and bias of each channel.",
    "_weight_norm_interface": "With dim=0 of a linear layer: `g * v / torch.linalg.vector_norm(v, dim=1,"
    " keepdim=True)`; of a convolution take the norm over all dims but dim, such as (1, 2, 3), and of dim=None over"
    " all.",
    "max_pool2d_with_indices": "Where windows do not overlap (stride k, no padding or dilation, sizes whole multiples"
    " of k: else cut the rest off first, and with ceil_mode=True pad): `x.unflatten(2, (-1, k)).unflatten(-1, (-1,"
    " k)).amax((3, 5))` (of a line x.unflatten(-1, (-1, k)).amax(-1)); else stack the k * k strided slices and take"
    " amax(0). The indices (return_indices=True) are not covered. Where maxima are equal, amax shares the gradient"
    " among them and the op gives it to the first. A newer release may have the kernel.",
    "avg_pool2d": "Where windows do not overlap (stride k, no padding, sizes whole multiples of k: else cut the rest"
    " off first): `x.unflatten(2, (-1, k)).unflatten(-1, (-1, k)).mean((3, 5))` (of a line x.unflatten(-1, (-1,"
    " k)).mean(-1)); else a depthwise convolution with constant weights, 1 / k**2 or 1 / divisor_override, and its"
    " padding. Padding with count_include_pad=False, and ceil_mode=True, are not covered. A newer release may have the"
    " kernel.",
    "_adaptive_avg_pool2d": "Where sizes divide, k = size / output: `x.unflatten(2, (-1, k)).unflatten(-1, (-1, k))"
    ".mean((3, 5))`; to one pixel it is x.mean((2, 3), keepdim=True).",
    "upsample_nearest2d": "By a whole factor s: `x[..., :, None, :, None].expand(-1, -1, -1, s, -1, s).reshape(n, c,"
    " h * s, w * s)`. To any other size or factor: `x.index_select(2, rows).index_select(3, columns)`, with rows made"
    " once on the CPU as F.interpolate(torch.arange(float(h))[None, None, :, None], ...)[0, 0, :, 0].long() with all"
    " arguments of your call and its size as (new_h, 1), or its scale_factor as (s, 1.0), and columns likewise.",
    "upsample_bilinear2d": "Resizing is linear: `rows @ x @ columns.mT`, with rows made once on the CPU as"
    " F.interpolate(torch.eye(h)[None, :, :, None], ...)[0, :, :, 0].T with all arguments of your call (mode,"
    " align_corners, antialias, recompute_scale_factor), its size as (new_h, 1), or its scale_factor as (s, 1.0)"
    " (where s * h is not whole, a size is not the same as a factor), and columns likewise. Of one dimension it is `x"
    " @ columns.mT`, with mode='linear' and no last dimension.",
    "affine_grid_generator": "For images (4-D sizes): write `(xy @ theta[:, :, :2].mT + theta[:, None, :,"
    " 2]).view(-1, h, w, 2)` with xy = F.affine_grid(torch.eye(2, 3)[None], (1, 1, h, w), align_corners=...).view(-1,"
    " 2), made once on the CPU and kept as a buffer. What falls back inside affine_grid is the grid of the unmoved"
    " image, which is always the same.",
    "grid_sampler_2d": "For bilinear, zeros and align_corners=False as written here; each point of the result is a"
    " weighted sum of the four pixels around it; with a weight for every row and column, nought for all but the two"
    " next to the point (a hat function), the sum needs no gather: `((image.flatten(1, 2) @ across).unflatten(1, (-1,"
    " h)) * down[:, None]).sum(2)` with across = torch.relu(-(x - torch.arange(w)[:, None]).abs() + 1) for the columns"
    " aimed at, x = ((grid[..., 0].flatten(1)[:, None] + 1) * w - 1) / 2, and down for the rows. Take the whole"
    " function, with align_corners and padding, in report.md (or of smoketest explain grid_sampler_2d). Work and"
    " memory grow with height times points; four gathers take less, but single gathers were reported to compile for"
    " hours.",
    "_sparse_mm": "The device has no sparse kernels. Of a sparse matrix of n rows keep row, column and value of each"
    " entry (edge), and add up: `torch.zeros(n, x.shape[1], device=x.device).index_add(0, rows,"
    " x.index_select(0, columns) * values[:, None])` is the matrix times x, entries that occur twice added. A small"
    " matrix that does not change is better made dense, once, as a buffer. Sparse times sparse is not covered.",
    # Embeddings, recurrent cells, complex numbers
    "_embedding_bag": "With bags of one size, without padding_idx: `F.embedding(ids, table).mean(1)` for mode='mean';"
    " .sum(1) for 'sum', after * weights[..., None] where there are per_sample_weights; .amax(1) for 'max'. Pad ragged"
    " bags in the data loader, and weigh by a mask, as entries at padding_idx: of the mean divide by the mask's sum."
    " max_norm and scale_grad_by_freq are not covered.",
    "embedding_renorm": "Scale the rows that are looked up, with max_norm left out: `rows * (max_norm /"
    " (torch.linalg.vector_norm(rows, dim=-1, keepdim=True) + 1e-7)).clamp(max=1.0)` with rows = F.embedding(ids,"
    " weight); norm_type= goes to vector_norm as ord. The table itself keeps its longer rows, and the gradient goes"
    " through the scale, which it does not with max_norm.",
    "_thnn_fused_lstm_cell": "PyTorch has no CPU kernel for the fused cell, so it cannot fall back either. Write the"
    " cell out: `(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g))` is the next c; with that one,"
    " torch.sigmoid(o) * torch.tanh(next_c) is the next h. There, i, f, g, o ="
    " (F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, -1). nn.LSTM is a loop of it over time: as a whole"
    " module in report.md (or of smoketest explain lstm), with layers and both directions.",
    "_thnn_fused_gru_cell": "PyTorch has no CPU kernel for the fused cell, so it cannot fall back either. Write the"
    " cell out: `n + z * (h - n)` is the next h, with n = torch.tanh(i_n + r * h_n), r = torch.sigmoid(i_r + h_r),"
    " z = torch.sigmoid(i_z + h_z), and i_, h_ the three chunks of F.linear(x, w_ih, b_ih) and F.linear(h, w_hh, b_hh)."
    " nn.GRU is a loop of it over time: as a whole module in report.md (or of smoketest explain gru), with layers and"
    " both directions.",
    "polar": "Keep real and imaginary parts as two real tensors: `torch.stack((a * c - b * s, a * s + b * c), -1)` is"
    " (a + bi)(c + si), a rotation by the angle of c and s. It goes where the two are multiplied, not"
    " where one is made.",
    "_fft_r2c": "With a fixed length n, along the last dimension, and norm='backward': multiply by the constant"
    " matrices of the transform: `x @ cosines` is the real part and -x @ sines the imaginary one (of norm='ortho'"
    " divide both by the root of n, of 'forward' by n). cosines is cos(2 pi t f / n) for t < n in rows and f <= n // 2"
    " in columns. irfft is `real @ a - imaginary @ b`, with a = weight * cosines.T / n, b likewise and weight 2 but"
    " for the columns f = 0 and, of an even n, n / 2, where it is 1. A causal convolution of length L by FFT is better"
    " written as F.conv1d(F.pad(u, (L - 1, 0)), kernel.flip(-1)[:, None], groups=channels).",
}

ADVICE: dict[str, str] = {
    "erfinv": "No short rewrite. The profile has an eager kernel; keep the op out of the compiled region, and draw"
    " truncated normals on the CPU before the model is moved.",
    "nonzero": "Where it comes of a mask in an assignment, select: y[m] = v is y = torch.where(m, v, y), and y[m] += c"
    " is y = torch.where(m, y + c, y). Else nothing has the same size, for how many entries there are is only known on"
    " the host: keep the full size and multiply by the mask, or pad to a maximum.",
    "_unique2": "No rewrite that is known to stay on the device. Find the distinct values in the data loader and pass"
    " them padded to a maximum, with the inverse index.",
    "grid_sampler_3d": "No short rewrite: weigh by one hat function for each axis, as smoketest explain grid_sampler_2d"
    " shows it for images.",
    "_ctc_loss": "No short rewrite. Move the log-probabilities to the CPU once per step on purpose, with .cpu() before"
    " the loss, which autograd follows, and accept it under gate.allow.",
    "normal": "Draw random numbers on the CPU, as part of the batch, and pass them in; initialize weights before the"
    " model is moved. The device draws on the CPU anyway, so seeds keep their meaning.",
    "multinomial": "Sample on the CPU from probabilities moved there once per step, or as part of the batch.",
    "linspace": "Make it once on the CPU and keep it as a buffer: self.register_buffer in the module's __init__, and in"
    " forward the attribute.",
    "linalg_cholesky_ex": "No rewrite: the device has no dense factorization or solver. Do it on the CPU on purpose,"
    " once per step: move what goes in with .cpu(), compute, and move what comes out back with .to(x.device), which"
    " autograd follows; and accept it under gate.allow. For 2 x 2 and 3 x 3 matrices write the formula out.",
    "_fft_c2c": "A causal convolution of length L by FFT is F.conv1d(F.pad(u, (L - 1, 0)), kernel.flip(-1)[:, None],"
    " groups=channels): conv1d does not flip its kernel. Anything else has no short rewrite: split real and imaginary"
    " parts and multiply by the cosine and sine matrices of the fixed length.",
    "_amp_update_scale": "Train with autocast in bfloat16, which needs no GradScaler.",
    "_fused_adam": "Use torch.optim.AdamW(fused=True), which has a kernel, or leave fused off.",
    "_sparse_coo_tensor_with_dims_and_tensors": "The device has no sparse kernels: build nn.Embedding with sparse=False"
    " and use a dense optimizer.",
    "_pack_padded_sequence": "The lengths have to be on the CPU: leave them there when the batch is moved, or give"
    " lengths.cpu(), which waits for the device. With enforce_sorted=False they are sorted where they are. The fused"
    " cell of a recurrent layer has no kernel either: with padded input, a mask, and the loop over time that smoketest"
    " explain lstm (or gru) shows, nothing is packed.",
    "_jagged_to_padded_dense_forward": "No rewrite: keep the batch padded from the data loader on"
    " (torch.nn.utils.rnn.pad_sequence), with a mask, instead of a nested tensor.",
    "set": "Where a parameter's .data is assigned, write into it instead, in place and under torch.no_grad(), as in"
    " p.mul_(momentum).add_(q, alpha=1 - momentum).",
    "select_scatter": "Where the index is negative, count it from the front, as in x[:, x.shape[1] - 1] for x[:, -1]:"
    " public torch-mlir takes that, and not the other, neither written to nor in a gradient.",
    "masked_scatter": "No short rewrite. Where each target's source is known beforehand, use torch.where with a"
    " gathered source.",
    "transformers::grouped_mm_fallback": "In a transformers model no line is to be rewritten: set"
    " model.set_experts_implementation('batched_mm') before training, or experts_implementation: batched_mm in the"
    " check's model.config; it neither sorts tokens nor counts them. It takes memory: a copy of the chosen experts'"
    " weights for every token.",
    "mode": "No rewrite. It is mostly part of a metric: compute that on the CPU, outside the step.",
}

_SAME: dict[str, tuple[str, ...]] = {
    "var": ("std", "var_mean", "std_mean"),
    "scatter_reduce": ("index_reduce",),
    "min": ("_aminmax", "aminmax"),
    "_cdist_forward": ("_cdist", "_pdist", "_pdist_forward", "_euclidean_dist"),
    "im2col": ("col2im",),
    "_jagged_to_padded_dense_forward": (
        "_padded_dense_to_jagged_forward",
        "_nested_from_padded_tensor",
        "to_padded_tensor",
    ),
    "linalg_matrix_exp": ("matrix_exp",),
    "_sparse_mm": ("_sparse_addmm", "sparse_coo_tensor", "_to_sparse", "hspmm"),
    "fake_quantize_per_tensor_affine_cachemask": (
        "fake_quantize_per_tensor_affine",
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        "fake_quantize_per_channel_affine",
        "fake_quantize_per_channel_affine_cachemask",
        "_fake_quantize_learnable_per_tensor_affine",
        "_fake_quantize_learnable_per_channel_affine",
        "fused_moving_avg_obs_fake_quant",
        "_fused_moving_avg_obs_fq_helper",
    ),
    "reflection_pad1d": ("reflection_pad2d", "reflection_pad3d"),
    "native_batch_norm": (
        "_native_batch_norm_legit",
        "_native_batch_norm_legit_functional",
        "_batch_norm_with_update",
        "_batch_norm_with_update_functional",
        "batch_norm",
    ),
    "max_pool2d_with_indices": ("max_pool2d", "max_pool3d_with_indices", "adaptive_max_pool2d"),
    "avg_pool2d": ("avg_pool3d",),
    "_adaptive_avg_pool2d": ("_adaptive_avg_pool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
    "upsample_nearest2d": ("upsample_nearest1d", "upsample_nearest3d", "_upsample_nearest_exact2d"),
    "upsample_bilinear2d": (
        "upsample_bicubic2d",
        "upsample_linear1d",
        "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    ),
    "_embedding_bag": ("_embedding_bag_dense", "_embedding_bag_per_sample_weights", "embedding_bag"),
    "_logcumsumexp": ("logcumsumexp",),
    "log_sigmoid_forward": ("log_sigmoid",),
    "nll_loss2d_forward": ("nll_loss2d",),
    "_prelu_kernel": ("prelu",),
    "_thnn_fused_lstm_cell": ("_thnn_fused_lstm_cell_backward_impl", "lstm", "lstm_cell"),
    "_thnn_fused_gru_cell": ("gru", "gru_cell"),
    "polar": (
        "complex",
        "view_as_complex",
        "view_as_real",
        "_conj",
        "_conj_physical",
        "conj_physical",
        "real",
        "imag",
        "angle",
    ),
    "_fft_r2c": ("_fft_c2r",),
    "_unique2": ("_unique", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
    "normal": (
        "uniform",
        "bernoulli",
        "random",
        "exponential",
        "log_normal",
        "cauchy",
        "geometric",
        "randperm",
        "poisson",
        "binomial",
        "_standard_gamma",
        "_sample_dirichlet",
    ),
    "linspace": ("logspace", "range", "tril_indices", "triu_indices"),
    "linalg_cholesky_ex": (
        "cholesky",
        "cholesky_inverse",
        "linalg_inv_ex",
        "linalg_qr",
        "_linalg_svd",
        "_linalg_eigh",
        "_linalg_det",
        "_linalg_slogdet",
        "_linalg_solve_ex",
        "linalg_solve_triangular",
        "linalg_lu_factor_ex",
        "linalg_lu",
        "linalg_lu_solve",
        "linalg_ldl_solve",
        "linalg_eig",
        "linalg_householder_product",
        "linalg_ldl_factor_ex",
        "triangular_solve",
        "linalg_lstsq",
    ),
    "_amp_update_scale": ("_amp_foreach_non_finite_check_and_unscale",),
    "_fused_adam": ("_fused_sgd", "_fused_adagrad"),
    "_sparse_coo_tensor_with_dims_and_tensors": ("_sparse_coo_tensor_unsafe", "_coalesce", "sparse_mask"),
}

_SPARSE = (
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_sparse_coo_tensor_unsafe",
    "_coalesce",
    "_sparse_addmm",
    "addmm",
)
"""Ops of sparse tensors that a line of the user's makes; the backward of an embedding makes the first as well."""

_INSIDE = (
    (re.compile(r"\baffine_grid\s*\("), ("linspace",), "aten::affine_grid_generator"),
    (re.compile(r"\bsparse\.\w|\bsparse_\w+\(|\bto_sparse"), _SPARSE, "aten::_sparse_mm"),
    (re.compile(r"\bpack_padded_sequence\s*\("), ("sort",), "aten::_pack_padded_sequence"),
    (re.compile(r"\bgroup_norm\s*\("), ("var_mean",), "aten::native_group_norm"),
    (re.compile(r"\.experts\("), ("histc", "sort", "_grouped_mm"), "transformers::grouped_mm_fallback"),
)
"""A call in the user's line, ops that it runs inside itself, and the op whose remedy is meant for it."""

_SETTING = re.compile(r"\b(mode|padding_mode|align_corners)\s*=\s*([\w'\"]+)")
"""Settings of grid_sample, as keywords in the user's line."""

_FIRST = {other: op for op, others in _SAME.items() for other in others}
_REMEDIES = REWRITES | ADVICE


def alike(op: str) -> tuple[str, ...]:
    """Base names of the ops that share an op's remedy, the op's own left out: what `lstm` becomes, and its backward."""
    name = functional_base(op).partition("::")[2]
    first = _FIRST.get(name, name)
    return tuple(f"aten::{other}" for other in (first, *_SAME.get(first, ())) if other != name)


def remedy_for(op: str) -> str | None:
    """What to write instead of an op; None where the table has nothing better than the rule's own sentence.

    Args:
        op: an overload name in any of its forms; the backward of an op has the op's remedy.
    """
    return looked_up(op, _REMEDIES)


def remedy_at(op: str, called_as: str | None, code: str) -> str | None:
    """What to write instead where an op was met; None where there is nothing better than the rule's own sentence.

    What the user's line calls comes first: he cannot change what a composite does inside.

    Args:
        op: the overload that was recorded, such as ``aten::var_mean.correction``.
        called_as: what the call dispatched, such as ``aten::native_group_norm``.
        code: the user's line; empty where not known.
    """
    name = functional_base(op).partition("::")[2]
    for call, inside, meant in _INSIDE:
        if name in inside and not re.search(rf"\b{name}\b", code) and call.search(code):
            return remedy_for(meant)
    found = (remedy_for(called_as) if called_as else None) or remedy_for(op)
    return f"{found} {told}" if found == REWRITES["grid_sampler_2d"] and (told := _sampling(code)) else found


def _sampling(code: str) -> str | None:
    """What a call of grid_sample, as far as its line shows it, asks of the rewrite; None where it shows nothing."""
    _, _, call = code.partition("grid_sample(")
    given = {name: value.strip("'\"") for name, value in _SETTING.findall(call)}
    if not given:
        return None
    shown = ", ".join(f"{name}={value}" for name, value in given.items())
    if given.get("mode", "bilinear") != "bilinear" or given.get("padding_mode", "zeros") not in ("zeros", "border"):
        return (
            f"It does not cover your call, which has {shown}: change the call to bilinear with zeros or border first."
        )
    told = {name: value for name, value in given.items() if name != "mode"}
    return f"Your call has {shown}" + (": pass it the same." if told else ", which is what it does.")


def is_rewrite(remedy: str) -> bool:
    """Whether a finding's remedy begins with a rewrite of the table: code that the tests run."""
    return any(remedy.startswith(rewrite) for rewrite in REWRITES.values())


def looked_up(op: str, table: Mapping[str, str]) -> str | None:
    """The entry of an op, of the op whose backward it is, or of the op of the same remedy; None where there is none."""
    namespace, _, name = functional_base(op).partition("::")
    name = name if namespace == "aten" else f"{namespace}::{name}"
    for form in (name, name.removesuffix("_backward"), name.removesuffix("_backward") + "_forward"):
        found = table.get(form) or table.get(_FIRST.get(form, ""))
        if found:
            return found
    return None
