"""Completeness checks of audio files, by their containers.

The decoder plays a WAV or Ogg file that was cut off (a download that broke, a full disk) as a
shorter recording and says nothing. The containers themselves know better: a RIFF or AIFF header
states how many bytes follow, and the last page of an Ogg stream is marked as the last.
"""

import io
import struct

Stream = io.BufferedReader | io.BytesIO

_UNKNOWN_SIZE = 0xFFFFFFFF  # what a program writes that streams a WAV and cannot go back
_LARGEST_PAGE = 27 + 255 + 255 * 255  # of an Ogg stream: header, table of segments, segments
_LAST_PAGE = 4  # the flag of the page that ends a stream


def cut_off(stream: Stream) -> str:
    """Describe what is missing at the end of the file; "" if nothing is, or none can tell."""
    stream.seek(0)
    magic = stream.read(4)
    if magic == b"RIFF":
        return _missing_chunk(stream, "<", b"data")
    if magic == b"FORM":
        return _missing_chunk(stream, ">", b"SSND")
    return _missing_page(stream) if magic == b"OggS" else ""


def _missing_chunk(stream: Stream, order: str, samples: bytes) -> str:
    """Compare the size of the data chunk with the bytes in the file."""
    end, at = stream.seek(0, io.SEEK_END), 12
    while at + 8 <= end:
        stream.seek(at)
        name, size = struct.unpack(order + "4sI", stream.read(8))
        here = end - at - 8
        if name == samples and here < size != _UNKNOWN_SIZE:
            return f"cut off: its header promises {size} bytes of samples, {here} are there"
        if name == samples:
            return ""
        at += 8 + size + size % 2
    return "cut off: it ends before its samples begin"


def _missing_page(stream: Stream) -> str:
    """Check the last page of an Ogg stream: marked as last, and complete."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - 2 * _LARGEST_PAGE))
    tail = stream.read()
    page = tail[tail.rfind(b"OggS") :]
    if len(page) < 27 or not page[5] & _LAST_PAGE:
        return "cut off: the last page of its Ogg stream is missing"
    segments = page[27 : 27 + page[26]]
    if len(segments) < page[26] or len(page) < 27 + len(segments) + sum(segments):
        return "cut off inside the last page of its Ogg stream"
    return ""
