"""The specification of the simulator in plain Python: what the native core must give, bit for bit."""
