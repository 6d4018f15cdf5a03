"""What a table is: values over PyIceberg's schemas, specs and metadata."""
