"""Changes of metadata alone: schema, partition spec, properties, refs, export, drop."""
