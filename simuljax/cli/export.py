"""The command `simuljax export`."""

from collections.abc import Callable

from simuljax.train.run import Export, RunError, describe, export, open_run


def export_command(chosen: Export) -> Callable[[], None]:
    """Copy a run without the state of its optimiser, to give away or to begin with elsewhere."""
    if chosen.to.exists() and (not chosen.to.is_dir() or any(chosen.to.iterdir())):
        raise RunError(f"{chosen.to} is there and not empty: name another directory with --to")
    open_run(chosen.run)
    return lambda: print(describe(export(chosen)))
