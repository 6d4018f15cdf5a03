"""Text, HTML and terminal output: how numbers, values and tables are shown to people."""
