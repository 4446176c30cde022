"""Streams of trained runs on a device: incremental encoders, and those that start anew."""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from simuljax.audio import RATE, AudioError
from simuljax.decode.reencoding import ReencodingDecoder, padded_size
from simuljax.decode.stream import (
    Chunk,
    Events,
    StreamingDecoder,
    StreamParams,
    batch_axes,
    put_row,
    put_rows,
    take_rows,
)
from simuljax.serve.session import STATE, Read, Session, Tokens

NO_SOUND = Read(samples=np.zeros(0, np.int16), ended=False, anew=True)


class IncrementalBackend:
    """A streaming encoder: a READ costs the same however long the stream is."""

    def __init__(
        self, decoder: StreamingDecoder, params: StreamParams, open_session: Callable[[], Session]
    ):
        self.decoder, self.params, self.open = decoder, params, open_session
        self.size = open_session().size
        self.step = jax.jit(decoder.step, donate_argnums=1)
        self.init = functools.cache(lambda streams: _placed(decoder.init(params, streams)))
        axes = batch_axes(lambda streams: decoder.init(params, streams))
        self.put = jax.jit(lambda state, row, new: put_row(state, row, new, axes), donate_argnums=0)

    @functools.cache  # noqa: B019 (lives as long as the translator)
    def compile(self, streams: int) -> None:
        """Step once without sound."""
        IncrementalRows(self, streams).step({0: NO_SOUND})

    def rows(self, streams: int) -> "IncrementalRows":
        """Return room for so many streams."""
        self.compile(streams)
        return IncrementalRows(self, streams)


class IncrementalRows:
    """Streams whose state stays on the device; every step moves all rows on."""

    def __init__(self, backend: IncrementalBackend, streams: int):
        self.backend, self.streams = backend, streams
        self.state = jax.tree.map(jnp.copy, backend.init(streams))  # a step takes it for itself

    def step(self, reads: Mapping[int, Read]) -> dict[int, Tokens]:
        """Compute the READs; go on without sound where there is more to write than events hold."""
        for row, read in reads.items():
            if read.anew:
                self.state = self.backend.put(self.state, np.int32(row), self.backend.init(1))
        events = [self._advance(reads)]
        while events[-1].more.any():
            events.append(self._advance({}))
        return {row: _joined([each.row(row) for each in events]) for row in reads}

    def _advance(self, reads: Mapping[int, Read]) -> Events:
        sound = np.zeros((self.streams, self.backend.size), np.int16)
        length, ended = np.zeros(self.streams, np.int32), np.zeros(self.streams, bool)
        for row, read in reads.items():
            sound[row, : len(read.samples)] = read.samples
            length[row], ended[row] = len(read.samples), read.ended
        chunk = Chunk(
            samples=jnp.asarray(sound), length=jnp.asarray(length), ended=jnp.asarray(ended)
        )
        self.state, events = self.backend.step(self.backend.params, self.state, chunk)
        return jax.device_get(events)


def _joined(parts: list[tuple[list[int], int, bool]]) -> Tokens:
    ids, reach, finished = zip(*parts, strict=True)
    return Tokens(
        ids=[*itertools.chain.from_iterable(ids)], reach=max(reach), finished=any(finished)
    )


class ReencodingBackend:
    """Any other encoder: with every READ all that has been heard is encoded anew."""

    def __init__(
        self, decoder: ReencodingDecoder, params: StreamParams, open_session: Callable[[], Session]
    ):
        self.decoder, self.params, self.open = decoder, params, open_session
        self.most = decoder.limits.states * STATE
        self.init = functools.cache(lambda streams: _placed(decoder.init(streams)))
        axes = batch_axes(decoder.init)
        self.put = jax.jit(lambda state, row, new: put_row(state, row, new, axes), donate_argnums=0)

        def read(params: Any, state: Any, rows: Any, sound: Any, length: Any, ended: Any) -> Any:
            """Read rows [n] of the state; those beyond its end are idle."""
            some, events = decoder.read(params, take_rows(state, rows, axes), sound, length, ended)
            return put_rows(state, rows, some, axes), events

        self.read = jax.jit(read, donate_argnums=1)

    @functools.cache  # noqa: B019 (lives as long as the translator)
    def compile(self, streams: int) -> None:
        """Read nothing, in the first shape."""
        ReencodingRows(self, streams).step({0: NO_SOUND})

    def rows(self, streams: int) -> "ReencodingRows":
        """Return room for so many streams."""
        self.compile(streams)
        return ReencodingRows(self, streams)


class ReencodingRows:
    """Streams whose sound is kept on the host; a step encodes those that have a READ."""

    def __init__(self, backend: ReencodingBackend, streams: int):
        self.backend, self.streams = backend, streams
        self.state = jax.tree.map(jnp.copy, backend.init(streams))
        self.sound = [np.zeros(0, np.int16)] * streams

    def step(self, reads: Mapping[int, Read]) -> dict[int, Tokens]:
        """Compute the READs in one batch."""
        for row, read in reads.items():
            before = self.sound[row]
            if read.anew:
                self.state = self.backend.put(self.state, np.int32(row), self.backend.init(1))
                before = before[:0]
            self.sound[row] = np.concatenate([before, read.samples])
            self._check(len(self.sound[row]))
        events = self._read(list(reads), [read.ended for read in reads.values()])
        found = (events.row(place) for place in range(len(reads)))
        return {row: _joined([one]) for row, one in zip(reads, found, strict=True)}

    def _read(self, due: list[int], over: list[bool]) -> Events:
        count = min(self.streams, 1 << (len(due) - 1).bit_length())  # few programs are compiled
        lengths = [len(self.sound[row]) for row in due]
        sound = np.zeros((count, padded_size(max(lengths))), np.int16)
        rows, length = np.full(count, self.streams, np.int32), np.zeros(count, np.int32)
        ended = np.zeros(count, bool)
        for place, row in enumerate(due):
            sound[place, : lengths[place]] = self.sound[row]
            rows[place], length[place], ended[place] = row, lengths[place], over[place]
        given = map(jnp.asarray, (rows, sound, length, ended))
        self.state, events = self.backend.read(self.backend.params, self.state, *given)
        return jax.device_get(events)

    def _check(self, samples: int) -> None:
        if samples > self.backend.most:
            raise AudioError(
                "not samples",
                f"a stream of more than {self.backend.most / RATE:.0f} s, all of which this "
                "encoder would read anew each time: raise limits.states, or train the streaming "
                "encoder",
            )


def _placed(state: Any) -> Any:
    """Bind a state to its device, as results of a step are, or the second step would recompile."""
    return jax.device_put(state, jax.local_devices()[0])
