"""What a snapshot is: its entries, its manifest, what may be restored, kept and collected. Decides on values alone."""
