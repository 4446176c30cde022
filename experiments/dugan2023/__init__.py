"""Dugan et al. 2023: Whisper with speaking policies and speech out."""
