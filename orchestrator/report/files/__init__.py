"""The files of a report beside its page: tables, summary, index; and how they take the place of earlier ones."""
