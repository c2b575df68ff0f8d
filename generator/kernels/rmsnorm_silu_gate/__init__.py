"""SiLU-gated RMSNorm over rows of one head."""
