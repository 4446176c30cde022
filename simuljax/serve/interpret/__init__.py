"""Simultaneous interpreting with an offline model (Dugan et al. 2023).

interpreter = Interpreter(whisper.load("ggml-tiny.bin"), Interpreting(policy=Consensus()))
stream = interpreter.stream()
for samples in microphone:
    for word in stream.push(samples):
        print(word.text, word.delay_ms)
print(stream.finish())

    hypothesis   what was written for a window
    policies     how much of it is said
    guards       what nobody said
    course       one speaker: sound in, windows out; hypotheses in, words out
    interpreter  the model, one stream or many recordings side by side
"""

from simuljax.serve.interpret.guards import Guards
from simuljax.serve.interpret.hypothesis import InterpretError
from simuljax.serve.interpret.interpreter import Interpreter, Stream
from simuljax.serve.interpret.policies import (
    AlignAtt,
    Confidence,
    Consensus,
    Greedy,
    LocalAgreement,
    Offline,
    Policy,
)
from simuljax.serve.interpret.settings import Interpreting

__all__ = [
    "AlignAtt",
    "Confidence",
    "Consensus",
    "Greedy",
    "Guards",
    "InterpretError",
    "Interpreter",
    "Interpreting",
    "LocalAgreement",
    "Offline",
    "Policy",
    "Stream",
]
