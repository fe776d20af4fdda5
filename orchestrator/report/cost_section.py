"""What the page says of time and memory."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.report.cost_tables import CostRow, cost_table
from orchestrator.words import Markdown, byte_size, duration, escape, listed


def cost_section(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> dict[str, object]:
    """The values for the page."""
    rows = cost_table(outcomes, baseline)
    devices = {outcome.record.device for outcome in flat(outcomes) if outcome.final and outcome.record}
    others = [escape(row.variant) for row in rows if row.is_other_budget]
    return {
        "cost_rows": [_cells(row) for row in rows],
        "cost_ends": any(row.seeds > 1 for row in rows),
        "cost_devices": Markdown(listed([escape(device) for device in sorted(devices)])),
        "cost_other_budget": Markdown(listed(others)),
    }


def _cells(row: CostRow) -> dict[str, object]:
    ends = f" ({row.slowest:,.0f} to {row.fastest:,.0f})" if row.seeds > 1 else ""
    return {
        "variant": row.variant,
        "epochs": f"{row.epochs:.3g} of {row.planned}" + (" (another budget)" if row.is_other_budget else ""),
        "seconds": duration(row.train_seconds),
        "evaluation": duration(row.evaluation_seconds),
        "speed": f"{row.tokens_per_second:,.0f}{ends}",
        "memory": byte_size(row.peak_memory_bytes),
        "seeds": row.seeds,
    }
