"""PyTorch: exported programs (`pt2`, `exported`), recorded steps (`capture`, `tape`), what ATen operators cost."""
