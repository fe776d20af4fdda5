"""The sections of the page: a file each, with its template."""
