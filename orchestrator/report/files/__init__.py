"""The files of a report: tables, and the folder that holds all of them."""
