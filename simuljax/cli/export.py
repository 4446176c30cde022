"""The command `simuljax export`."""

from collections.abc import Callable

from simuljax.train.run import Export, RunError, describe, export, open_run


def export_command(copy: Export) -> Callable[[], None]:
    """Copy a run without the state of its optimiser, to give away or to begin with elsewhere."""
    if copy.to.exists() and (not copy.to.is_dir() or any(copy.to.iterdir())):
        raise RunError(f"{copy.to} is there and not empty: name another directory with --to")
    open_run(copy.run)
    return lambda: print(describe(export(copy)))
