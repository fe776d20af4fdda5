"""What a sweep will cost: a few real steps of each distinct model, and sums over its trials. Free of torch."""

from orchestrator.estimate.measuring import Measuring
from orchestrator.estimate.reckoning import Estimate, core_hours, estimate
from orchestrator.estimate.table import print_estimate

__all__ = ["Estimate", "Measuring", "core_hours", "estimate", "print_estimate"]
