"""A policy of one's own: `--policy tests/decode/own_policy.py:Patient --sweep share=0.2,0.4`."""

from dataclasses import dataclass
from typing import Any, ClassVar

from simuljax.config.fields import setting
from simuljax.decode.policies import Need, Policy, Step


@dataclass(frozen=True, kw_only=True)
class Patient(Policy):
    """Read while the next token attends most to the last `share` of the source."""

    name: ClassVar[str] = "patient"
    needs: ClassVar[tuple[Need, ...]] = ("attention",)
    share: float = setting(0.2, help="Share of the source.", label="share{:g}", above=0, high=1)

    def should_read(self, step: Step) -> Any:
        attended = step.attention.mean((0, -2)).argmax(-1)  # over layers and heads
        return attended >= (1 - self.share) * step.states
