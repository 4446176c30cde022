"""One Python file is one experiment, readable as a document."""
