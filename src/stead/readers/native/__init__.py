"""stead's own graphs: JSON that people can read (`reader`, `writer`), and arrays (`npz`)."""
