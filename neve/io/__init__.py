"""Bytes: Avro, Puffin, deletion vectors, paths and files."""
