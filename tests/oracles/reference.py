"""Small worked examples with the numbers they must give."""

import numpy as np

P = np.array([[0.1, 0.5, 0.9, 0.3], [0.2, 0.4, 0.6, 0.8], [0.7, 0.1, 0.3, 0.5]])
ALIGNMENT = np.array(
    [[0.1, 0.45, 0.405, 0.0135], [0.02, 0.212, 0.4338, 0.24216], [0.014, 0.0218, 0.189, 0.34158]]
)
PRESERVED = np.array(
    [[0.1, 0.45, 0.405, 0.045], [0.02, 0.212, 0.4338, 0.3342], [0.014, 0.0218, 0.189, 0.7752]]
)
PRESERVED_3 = np.array([[0.1, 0.45, 0.45, 0], [0.02, 0.212, 0.768, 0], [0.014, 0.0218, 0.9642, 0]])
DELAYS = np.array([2.395, 3.0822, 3.7254])

SOFT_ENERGY = np.array([[0.0, 1, -1, 2], [0.5, 0.5, 0.5, 0.5], [2, -1, 0, 1]])
LOOKBACK = np.array(
    [
        [0.32406, 0.60906, 0.03791, 0.02898],
        [0.35415, 0.33415, 0.22815, 0.08355],
        [0.69341, 0.03383, 0.08914, 0.18363],
    ]
)
CHUNK_2 = np.array(
    [
        [0.22102, 0.68570, 0.05041, 0.04287],
        [0.126, 0.32290, 0.384, 0.16710],
        [0.03477, 0.05186, 0.34665, 0.56672],
    ]
)

# Delays of two heads over three targets and four encoder states.
TWO_HEADS = np.array([[2.395, 3.0822, 3.7254], [1.0, 2.0, 4.0]])

# Energies of two heads over three targets: [H,T,K] and [H,T,L].
SPEECH_ENERGY = np.array(
    [[[1.0, 0, -1], [0, 2, 1], [-2, 1, 3]], [[0.5, -1, 0], [1, 1, -0.5], [0, 2, -1]]]
)
TEXT_ENERGY = np.array([[[1.0, -1], [0, 1.5], [-1, 2]], [[0, 0.5], [2, -1], [1, 1]]])
COLUMN_COSTS = np.array([0.564636, 0.230021, 0.132352, 0.916689])

# Encoder states [K,D] and [L,D].
SPEECH_STATES = np.array([[1.0, 1], [2, 0], [0, 3]])
TEXT_STATES = np.array([[1.0, 0], [0, 1]])
PAPER_COSTS = np.array([0.154876, 0.154876])
FAIRSEQ_COSTS = np.array([0.117524, 0.154876, 0.154876])
