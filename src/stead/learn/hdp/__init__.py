"""HDP (Mirhoseini et al., ICLR 2018): a learned grouper before the placer; read method.py."""
