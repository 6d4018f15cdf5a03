"""The lakes of a Spark session, as catalogs of its SQL, readers and writers."""
