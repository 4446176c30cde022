"""Zaidi et al. 2022: decision attentive regularisation."""
