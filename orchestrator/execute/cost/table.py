"""An estimate as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.execute.cost.reckoning import Estimate, Packing
from orchestrator.words import in_words

_PLAIN_WIDTH = 160


def print_estimate(found: Estimate) -> None:
    """Print a line a variant that has to train, and what all of it takes."""
    console = Console()
    console = console if console.is_terminal else Console(width=_PLAIN_WIDTH)
    table = Table("variant", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("trials to train", "tokens/s", "time", "peak memory"):
        table.add_column(heading, justify="right")
    for cost in found.variants:
        if cost.trials:
            cells = (str(cost.trials), f"{cost.tokens_per_second:,.0f}", in_words(cost.seconds))
            table.add_row(*map(Text, (cost.variant, *cells, in_bytes(cost.peak_memory_bytes))))
    if table.row_count:
        console.print(table)
    for line in _lines(found):
        console.print(Text(line))


def in_bytes(count: float) -> str:
    """Bytes as they are read: 1.2 GiB, 340 MiB."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def _lines(found: Estimate) -> Iterator[str]:
    states = found.states
    cached = states.get("done", 0) + states.get("diverged", 0) + states.get("read", 0)
    new = states.get("new", 0) + states.get("failed", 0) + states.get("damaged", 0)
    yield f"trials: {new} new, {cached} cached, {states.get('to resume', 0)} to resume"
    if found.packing is not None:
        yield (
            f"whole sweep: at most {in_words(found.seconds)}, {found.jobs} at once, "
            f"{found.core_hours:,.1f} core-hours; early stops count in full, the neural cache's search is not counted, "
            "and trials beside each other may slow each other down"
        )
        yield f"disk: {in_bytes(found.disk_bytes)} kept, {in_bytes(found.checkpoint_bytes)} of checkpoints meanwhile"
        yield f"room for {found.packing.at_once} at once: {_limits(found.packing)}"
    detectable = found.detectable
    if detectable is None:
        yield "smallest detectable difference: no two finished seeds of a variant that differ, to tell the spread from"
    else:
        text = "the text's noise is not known"
        if detectable.text_error_nats is not None:
            text = f"the text adds {detectable.text_error_nats:.2g} to a difference"
        yield (
            f"smallest detectable difference: {detectable.perplexity:.2g} perplexity ({detectable.nats:.2g} nats) with "
            f"{detectable.seeds} seeds, at 80% power and the report's level; seeds spread by "
            f"{detectable.deviation_nats:.2g} nats, {text}"
        )


def _limits(packing: Packing) -> str:
    named = {"CPUs": packing.by_cpus, "memory": packing.by_memory, "GPUs": packing.by_gpus}
    return ", ".join(f"{count} by {name}" for name, count in named.items() if count is not None)
