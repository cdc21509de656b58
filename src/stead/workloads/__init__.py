"""Graphs that come with stead."""
