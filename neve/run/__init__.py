"""The data plane: reading and writing rows."""
