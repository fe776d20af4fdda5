"""A sweep's report: the page and what lies beside it, a pure function of plan and records."""

from orchestrator.report.page import Report, ReportInput, write_report

__all__ = ["Report", "ReportInput", "write_report"]
