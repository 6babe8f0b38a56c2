"""Whether the job fits and what its fallbacks cost, in sentences; what the renderers for people share."""

from __future__ import annotations

from smoketest.findings.report import CostPart, FitPart, Report
from smoketest.render import words

__all__ = ["assumptions", "cost", "duration", "fit", "lines"]

_MOST_MOVING = 3


def lines(report: Report) -> list[str]:
    """All sentences, one a line; none where nothing was estimated or counted."""
    return [*fit(report), *cost(report)]


def fit(report: Report) -> list[str]:
    """Memory and compilation, each a sentence; none where the model was not sized."""
    part = report.fit
    if part.status != "ran" or part.total_bytes is None:
        return []
    sentences = [f"Memory (estimate): {_parts(part)}: {words.size(part.total_bytes)}{_against(part)}."]
    if part.kernels is not None:
        sentences.append(_kernels(part))
    return sentences


def assumptions(report: Report) -> str | None:
    """What the estimate takes for granted, one line; None where there is no estimate."""
    return f"The estimate assumes: {'; '.join(report.fit.assumptions)}." if report.fit.assumptions else None


def cost(report: Report) -> list[str]:
    """What a step costs, in counts and, from a device run, in time and money; none where nothing was counted."""
    part = report.cost
    counts = _counts(part)
    if not counts and part.step_ms is None:
        return []
    how = "" if report.device.kind == "neuron" else " (predicted)" if report.device.kind == "emulated" else ""
    sentences = [f"Cost of the fallbacks{how}: {', '.join(counts)}."] if counts else []
    if part.step_ms is not None:
        sentences.append(_time(part))
    if part.why_not is not None:
        what = "Not given" if part.step_ms is not None else "No milliseconds, hours or money"
        sentences.append(f"{what}: {part.why_not}.")
    return sentences


def duration(seconds: float) -> str:
    """Such as ``40 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def _parts(part: FitPart) -> str:
    """The sizes by what holds them; of what is not known it is said so."""
    model = (part.parameter_bytes or 0) + (part.buffer_bytes or 0)
    known = [f"weights and buffers {words.size(model)}", f"gradients {words.size(part.gradient_bytes or 0)}"]
    unknown = []
    for name, count in (("optimizer state", part.optimizer_bytes), ("activations", part.activation_bytes)):
        if count is None:
            unknown.append(name)
        else:
            known.append(f"{name} {words.size(count)}")
    return ", ".join(known) + (f" (not known: {', '.join(unknown)})" if unknown else "")


def _against(part: FitPart) -> str:
    """The verdict: how the total stands to the device's memory."""
    if part.total_bytes is None or part.device_bytes is None:
        return ""
    device = f"{words.size(part.device_bytes)} of a logical core"
    if part.fits is False:
        return f", which does not fit in the {device}"
    percent = 100 * part.total_bytes / part.device_bytes
    share = f"{'less than 1' if percent < 1 else f'{percent:.0f}'} % of the {device}"
    return f", {share}" if part.fits else f", {share} by what is known"


def _kernels(part: FitPart) -> str:
    count = words.counted(part.kernels or 0, "kernel")
    text = f"First step (estimate): {count} to compile, by distinct op, shapes and dtypes"
    if part.compile_seconds is not None and part.kernels:
        fewest, most = part.compile_seconds
        each = f"{fewest / part.kernels:.0f} to {most / part.kernels:.0f} s"
        text += f"; {duration(fewest)} to {duration(most)} if each takes the {each} that people reported for one"
    if part.new_kernels == 0:
        return f"{text}. The step after needs no new ones."
    if not part.new_kernels:
        return f"{text}."
    shown = part.moving[:_MOST_MOVING]
    more = f"; and {part.new_kernels - len(shown):,} more" if part.new_kernels > len(shown) else ""
    return f"{text}. The step after, with another batch, needs {part.new_kernels:,} new: {'; '.join(shown)}{more}."


def _counts(part: CostPart) -> list[str]:
    least = "at least " if part.exact is False else ""
    found = []
    if part.calls_per_step is not None:
        found.append(f"{least}{words.counted(part.calls_per_step, 'call')} per step on the CPU")
    if part.bytes_per_step:
        found.append(f"{least}{words.size(part.bytes_per_step)} per step to and from the host")
    if part.host_syncs_per_step:
        found.append(f"the host waits for the device {words.counted(part.host_syncs_per_step, 'time')} per step")
    return found


def _time(part: CostPart) -> str:
    text = f"Time (measured): {part.step_ms:,.1f} ms per step"
    if part.fallback_ms is not None and part.share is not None:
        text += f", at most {part.fallback_ms:,.1f} ms ({100 * part.share:.0f} %) of it in fallbacks"
    if part.hours is None:
        return f"{text}."
    text += f"; {part.plan_steps or 0:,} steps take {_hours(part.hours)}"
    if part.money is not None:
        text += f" and cost {part.money:,.2f}"
    if part.fallback_hours is None:
        return f"{text}."
    text += f", of which fallbacks at most {_hours(part.fallback_hours)}"
    return text + (f" and {part.fallback_money:,.2f}." if part.fallback_money is not None else ".")


def _hours(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 0.1 else duration(hours * 3600)
