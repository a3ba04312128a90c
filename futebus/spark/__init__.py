"""The bus as a Spark source and sink. Knows nothing of how a bus is mounted, only of files."""
