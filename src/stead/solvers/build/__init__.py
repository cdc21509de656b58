"""Constructions: one placement built from scratch, by cutting an order, by list scheduling or by partitioning."""
