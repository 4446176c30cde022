"""Expected alignment, mass preservation and expected delays of one head: p, a [T,S]."""

import numpy as np


def real_columns(x, length=None):
    """A float64 copy of x [T,S] with zeros from column `length` on."""
    x = np.array(x, dtype=np.float64)
    if length is not None:
        x[:, length:] = 0.0
    return x


def linear_recurrence(decay, value, reverse=False):
    """h[j] = decay[j] h[j-1] + value[j] from h[-1] = 0; reversed, h[j+1] stands for h[j-1]."""
    order = range(len(value))
    h, carry = np.zeros(len(value)), 0.0
    for j in reversed(order) if reverse else order:
        carry = float(decay[j]) * carry + float(value[j])
        h[j] = carry
    return h


def expected_alignment(p, length=None):
    """q[i,j] = (1 - p[i,j-1]) q[i,j-1] + a[i-1,j], a[i,j] = p[i,j] q[i,j], a[-1,:] = (1,0,..,0)."""
    p = real_columns(p, length)
    targets, sources = p.shape
    a = np.zeros((targets, sources))
    before = np.zeros(sources)
    before[0] = 1.0
    for i in range(targets):
        q = before[0]
        a[i, 0] = p[i, 0] * q
        for j in range(1, sources):
            q = (1.0 - p[i, j - 1]) * q + before[j]
            a[i, j] = p[i, j] * q
        before = a[i]
    return a


def preserve_mass(a, length=None):
    """The residual 1 - sum_j a[i,j] goes to the last real position, if there is one."""
    a = real_columns(a, length)
    last = a.shape[1] if length is None else int(length)
    if last == 0:
        return a
    for i in range(a.shape[0]):
        residual = 1.0
        for j in range(last):
            residual -= a[i, j]
        a[i, last - 1] += residual
    return a


def expected_delays(a, positions=None):
    """g[i] = sum_j pos[j] a[i,j], positions counted in encoder states from 1."""
    targets, sources = np.shape(a)
    g = np.zeros(targets)
    for i in range(targets):
        for j in range(sources):
            position = j + 1 if positions is None else positions[j]
            g[i] += position * a[i][j]
    return g
