"""The commands: one module for each. Each imports what does the work late, so that --help is instant."""
