"""Decoding on arrays: when to read, when to write, and what.

    policies     read/write policies, and their protocol
    context      the model with its choices, and the source as far as it is known
    greedy       greedy search under a policy, or with the model's own decisions
    beam         whole sources: several hypotheses, or one
    stream       one compiled step from samples to tokens, for encoders that stream
    reencoding   the same for encoders that start anew with every READ; simulated test sets
    caat         CAAT's beam inside a group, and its streams

Hard decisions are those of the training-time forward pass with p rounded to 0 or 1, run on the
source so far. Threads, clocks and sessions are in `simuljax.serve`.
"""
