"""Names that modules written for the classic contract import."""
