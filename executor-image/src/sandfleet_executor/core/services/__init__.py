"""Services as values: declarations (`spec`), one service (`machine`), all together (`plan`), output (`log`)."""
