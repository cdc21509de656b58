"""What readers share: strict parsing, open sizes, folding, FLOPs, tied weights."""
