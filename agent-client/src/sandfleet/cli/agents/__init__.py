"""Commands about what agents have learned."""
