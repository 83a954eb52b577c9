"""Services as values: what is declared (`spec`), what becomes of one (`machine`), of all of them (`plan`), and what they write (`log`)."""
