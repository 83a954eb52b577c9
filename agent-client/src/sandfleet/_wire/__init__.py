"""The one seam to gRPC: connections, streams that resume, errors, and messages as values."""
