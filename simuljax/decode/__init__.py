"""Decoding: when to read, when to write, and what.

    offline    whole sources, greedily
    simulate   what a stream would write and when, for encoders that hear all of their prefix anew
    stream     one compiled step from samples to tokens, for encoders that stream
    options    what can be chosen

Hard decisions are those of the training-time forward pass with p rounded to 0 or 1, run on what
has been heard so far.
"""
