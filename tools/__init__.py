"""Tools that make what the package ships."""
