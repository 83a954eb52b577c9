"""Tools of this process that code in a brokered sandbox calls."""
