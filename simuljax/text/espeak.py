"""The eSpeak NG library, loaded anew for each use.

The library keeps everything in globals, and some of it survives even a restart: the phase of one
utterance's voicing carries over to the next. Unloaded in between, which costs about a millisecond,
it gives the same answer to the same question. That holds only if nobody in the process keeps it
loaded, so this is the one place that loads it. It is under the GPL and therefore optional.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simuljax.errors import import_extra

RATE = 22_050

# Names as in the engine's speak_lib.h.
_SYNCHRONOUS = 2  # the retrieval mode, 1, works from a thread of its own and crashes
_PHONEME_EVENTS, _IPA, _DONT_EXIT = 0x1, 0x2, 0x8000
_alone = threading.Lock()


def data_path() -> Path:
    """Return the directory of eSpeak's voices and languages."""
    return Path(_loader().get_data_path())


@contextmanager
def fresh_library() -> Iterator[ctypes.CDLL]:
    """Yield the initialised library, for one thread at a time; unload it at the end."""
    loader = _loader()
    with _alone:
        library = ctypes.CDLL(loader.get_library_path())
        options = _PHONEME_EVENTS | _IPA | _DONT_EXIT
        try:
            rate = library.espeak_Initialize(
                _SYNCHRONOUS, 0, loader.get_data_path().encode(), options
            )
            if rate != RATE:
                raise RuntimeError(
                    f"eSpeak NG reports {rate} Hz, not {RATE}: reinstall espeakng-loader"
                )
            yield library
            library.espeak_Terminate()
        finally:
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


def _loader():
    return import_extra("espeakng_loader", "speech")
