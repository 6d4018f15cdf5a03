"""Névé: an Apache Iceberg table engine for tables that have lived."""
