"""What a sweep will cost: a few real steps of each distinct model, and sums over its trials. Free of torch."""

from orchestrator.execute.cost.measuring import Measuring
from orchestrator.execute.cost.totals import Estimate, core_hours, estimate, print_estimate

__all__ = ["Estimate", "Measuring", "core_hours", "estimate", "print_estimate"]
