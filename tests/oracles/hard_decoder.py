"""The monotonic decoder with hard decisions: float64, one example, everything from scratch.

Parameters are those of `models.joint.Decoder`, the layers of `layer` along the first axis.
"""

import math
from dataclasses import dataclass

import jax
import numpy as np


@dataclass
class Heard:
    """The source so far: states [K, D], what each decision looks at [W, D], where it stands."""

    states: np.ndarray
    keys: np.ndarray
    ends: list
    ended: bool
    exists: list | None = None  # which decisions there are, where that is learnt


@dataclass
class Stand:
    """One head at one target."""

    pointer: int  # len(ends) for a head that wants a decision to come
    reach: int
    p: float
    waits: bool


def float64(parameters):
    return jax.tree.map(lambda a: np.asarray(a, np.float64), parameters)


def layer_of(parameters, index):
    return jax.tree.map(lambda a: a[index], parameters["layer"])


def linear(p, x):
    return x @ p["kernel"] + p["bias"]


def norm(p, x):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def positions(count, width):
    half = width // 2
    rate = [math.exp(-math.log(10_000.0) * i / (half - 1)) for i in range(half)]
    return np.array([[f(t * r) for f in (np.sin, np.cos) for r in rate] for t in range(count)])


def heads_of(x, heads):
    """[N, D] -> [H, N, d]."""
    return np.moveaxis(x.reshape(len(x), heads, -1), 1, 0)


def mixed(query, keys, values):
    """softmax(q k / sqrt(d)) v for one query."""
    energy = keys @ query / math.sqrt(len(query))
    weight = np.exp(energy - energy.max())
    return weight / weight.sum() @ values


def self_attention(p, x, heads):
    q, k, v = (heads_of(linear(p[name], x), heads) for name in ("query", "key", "value"))
    rows = [[mixed(q[h, t], k[h, : t + 1], v[h, : t + 1]) for h in range(heads)]
            for t in range(len(x))]  # fmt: skip
    return linear(p["out"], np.array(rows).reshape(len(x), -1))


class HardDecoder:
    """`attempt` gives the logits after each token, and where every head stood for it."""

    def __init__(self, parameters, monotonic, heads, *, threshold=0.5, k=None):
        self.parameters, self.monotonic, self.heads = float64(parameters), monotonic, heads
        self.energy = math.log(threshold / (1 - threshold))
        self.k = sum(monotonic.wait_k) // 2 if k is None else k

    @property
    def layers(self):
        return len(self.parameters["layer"]["self_norm"]["scale"])

    def attempt(self, tokens, heard, committed=(), start=None):
        """`committed[t][layer][head]` are stands of targets that are not judged again.

        `start[layer][head]` are pointers for the last token, if it has been tried before.
        """
        table = self.parameters["embedding"]["embedding"]
        x = table[tokens] * math.sqrt(table.shape[1]) + positions(len(tokens), table.shape[1])
        stands = [[[] for _ in range(self.layers)] for _ in tokens]
        for index in range(self.layers):
            p = layer_of(self.parameters, index)
            x = x + self_attention(p["heads"], norm(p["self_norm"], x), self.heads)
            queries = norm(p["cross_norm"], x)
            for t in range(len(tokens)):
                before = [s.pointer for s in stands[t - 1][index]] if t else [0] * self.heads
                before = start[index] if start and t == len(tokens) - 1 else before
                fixed = committed[t][index] if t < len(committed) else None
                stands[t][index] = fixed or self.stands(p["cross"], queries[t], t, before, heard)
            read = [self.read(p["cross"], queries[t], stands[t][index], heard)
                    for t in range(len(tokens))]  # fmt: skip
            x = x + linear(p["cross"]["heads"]["out"], np.array(read))
            y = norm(p["forward_norm"], x)
            y = np.maximum(linear(p["feed_forward"]["inner"], y), 0)
            x = x + linear(p["feed_forward"]["outer"], y)
        x = norm(self.parameters["norm"], x)
        own = self.parameters.get("output")
        return x @ (table.T if own is None else own["kernel"]), stands

    def stands(self, p, query, target, before, heard):
        """Every head goes on from where it stood until it accepts a decision."""
        count, found = len(heard.ends), []
        if self.monotonic.policy == "learned" and count:
            q = heads_of(linear(p["decide_query"], query[None]), self.heads)[:, 0]
            k = heads_of(linear(p["decide_key"], heard.keys), self.heads)
            energies = [k[h] @ q[h] / math.sqrt(q.shape[1]) + p["bias"] for h in range(self.heads)]
            if heard.exists is not None:
                energies = np.where(heard.exists, energies, -700)  # exp(700) is still a number
        else:
            energies = np.zeros((self.heads, count))
        for h in range(self.heads):
            pointer, p_write = before[h], 0.0
            if self.monotonic.policy == "learned":
                while pointer < count and energies[h][pointer] < self.energy:
                    pointer += 1
                if count:
                    p_write = 1 / (1 + math.exp(-energies[h][min(pointer, count - 1)]))
            elif self.monotonic.policy == "wait_k":
                needed = self.k + target + (self.monotonic.convention == "papi")
                pointer = min(needed - 1, count)
                p_write = float(pointer < count)
            else:
                pointer, p_write = count, float(heard.ended)
            reach = heard.ends[min(pointer, count - 1)] if count else -1
            if self.monotonic.policy == "offline":
                reach = len(heard.states) - 1
            found.append(Stand(pointer, reach, p_write, pointer >= count and not heard.ended))
        return found

    def read(self, p, query, stands, heard):
        """What the heads attend to, concatenated."""
        if not len(heard.states):
            return np.zeros(len(query))
        return np.concatenate([self.mixture(p["heads"], query, h, stand, heard.states)
                               for h, stand in enumerate(stands)])  # fmt: skip

    def mixture(self, p, query, h, stand, states):
        """softmax over the states that head h attends to."""
        width = {"hard": 1, "chunkwise": self.monotonic.chunk}.get(self.monotonic.attention)
        width = None if self.monotonic.policy == "offline" else width
        first = 0 if width is None else max(0, stand.reach + 1 - width)
        seen = states[first : stand.reach + 1]
        values = heads_of(linear(p["value"], seen), self.heads)[h]
        if width == 1 or not len(seen):
            return values.sum(0)
        keys = heads_of(linear(p["key"], seen), self.heads)[h]
        return mixed(heads_of(linear(p["query"], query[None]), self.heads)[h, 0], keys, values)
