"""ColocRL (Mirhoseini et al., ICML 2017): co-location rules and a sequence-to-sequence placer; read method.py."""
