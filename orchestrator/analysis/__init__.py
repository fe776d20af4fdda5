"""From records to effects with intervals: outcomes, who may be compared, noise, intervals, power."""
