"""Decoding on arrays: when to read, when to write, and what.

    policy, policies    the protocol of read/write policies, and those of the library
    state, source       the targets so far, the source so far: pytrees of fixed size
    greedy              greedy search under a policy, or with the model's own decisions
    beam, offline       several hypotheses, or one, of a whole source
    caat_search, caat   CAAT's beam inside a group, and its streams
    stream              one compiled step from samples to tokens, for encoders that stream
    reencoding          the same for encoders that start anew with every READ
    simulate            what streams would write, and when, for a batch of whole sources

Hard decisions are those of the training-time forward pass with p rounded to 0 or 1, run on the
source so far. Threads, clocks and sessions are in `simuljax.serve`.
"""
