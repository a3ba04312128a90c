"""The bus as a directory: the only place that knows pyfuse3, trio and errno numbers as answers."""
