"""Decoding: when to read, when to write, and what.

    offline    whole sources, greedily or with a beam
    beam       several hypotheses of a whole source at once
    simulate   what a stream would write and when, for encoders that hear all of their prefix anew
    reread     the same live, one READ at a time
    stream     one compiled step from samples to tokens, for encoders that stream
    listener   what lies between samples and words on the host
    engine     many live streams in the rows of one batch
    options    what can be chosen
    policies   what decides for models that were trained offline; `judging` does it, on arrays

Hard decisions are those of the training-time forward pass with p rounded to 0 or 1, run on what
has been heard so far.
"""
