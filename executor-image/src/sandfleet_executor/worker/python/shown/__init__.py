"""What a cell shows: values, figures and their representations."""
