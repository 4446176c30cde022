"""Speech as people speak it: what training audio goes through."""
