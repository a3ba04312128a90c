"""Measurements. Figures are compared within one run, side by side, since machines differ and are shared."""
