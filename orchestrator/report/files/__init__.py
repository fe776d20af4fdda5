"""The files of a report: its place, tables, summary, and the index of all reports."""
