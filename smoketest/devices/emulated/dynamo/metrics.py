"""``get_dynamo_metrics`` of the emulated device: one record for each graph that was compiled.

Fields and names are the backend's ([PRE] ``neuron_dynamo_backend/metrics.py``). Graphs that fail are in no record.
"""

from __future__ import annotations

import atexit
import csv
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path

__all__ = ["NeuronCompilationMetrics", "get_dynamo_metrics", "record", "reset_dynamo_metrics", "write_at_exit"]

_TABLE = "graph_stats"
_recorded: list[NeuronCompilationMetrics] = []


@dataclass(frozen=True)
class NeuronCompilationMetrics:
    """One compiled graph.

    Attributes:
        graph_id: a key of its content.
        graph_name: ``{model_name}_{aot_id}_{graph_type}_{nth}``, such as ``model_default_0_inference_0``.
        model_name: the option ``model_name`` of torch.compile.
        has_collectives: whether it calls functional collectives.
        graph_node_count: nodes of its FX graph.
        timestamp: seconds since 1970.
        torch_neuronx_fx_passes_us: microseconds of the passes over the graph, on this machine.
        torch_neuronx_lower_us: microseconds of lowering it with the public torch-mlir, on this machine: they say
            nothing of the device.
        torch_neuronx_compile_us: None: neuronx-cc is not run.
    """

    graph_id: str
    graph_name: str
    model_name: str
    has_collectives: bool
    graph_node_count: int
    timestamp: float
    torch_neuronx_fx_passes_us: int
    torch_neuronx_lower_us: int
    torch_neuronx_compile_us: int | None = None


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """The graphs compiled since the last `reset_dynamo_metrics`, in order."""
    return list(_recorded)


def reset_dynamo_metrics() -> None:
    """Forget them."""
    _recorded.clear()


def record(made: NeuronCompilationMetrics) -> None:
    """Add one graph."""
    _recorded.append(made)


def write_at_exit(environment: Mapping[str, str]) -> None:
    """Have the records written to a file at exit, where ``TORCH_NEURONX_ENABLED_METRIC_TABLES`` asks for it ([PRE]).

    The file is ``metric_table_graph_stats_rank{rank}.csv`` in ``TORCH_NEURONX_METRICS_DIR``, else in /tmp.

    Raises:
        ValueError: a table is asked for that there is not.
    """
    asked = [name.strip() for name in environment.get("TORCH_NEURONX_ENABLED_METRIC_TABLES", "").split(",")]
    for name in asked:
        if name not in ("", _TABLE):
            raise ValueError(f"Metric table '{name}' is not registered. Known tables: {_TABLE}")
    atexit.unregister(_write)
    if _TABLE in asked:
        folder = Path(environment.get("TORCH_NEURONX_METRICS_DIR", "/tmp"))
        atexit.register(_write, folder / f"metric_table_{_TABLE}_rank{environment.get('RANK', '0')}.csv")


def _write(file: Path) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow([field.name for field in fields(NeuronCompilationMetrics)])
        writer.writerows(astuple(made) for made in _recorded)
