"""An English-German corpus that needs no download: a grammar that makes parallel sentences.

`sentences("train", 100_000)` gives as many pairs as wanted, the same ones everywhere. The German
has the word order that makes simultaneous translation hard: verbs at the end of subordinate
clauses, prefixes that leave their verbs, participles and infinitives last, the verb second
whatever comes first. Half of the test split is made of `HELD_OUT` compositions of constructions,
which train and valid lack, out of words and parts that train has; so memorising does not help.

The lexicon stands in `nouns`, `verbs` and `modifiers`; morphology in `english`, `german` and
`numbers`; a clause's meaning in `clauses`, and how either language says it in `say_english` and
`say_german`; the `frames_*` build sentences of clauses, `constructions` lists them, and `corpus`
divides them into splits.
"""

from .constructions import HELD_OUT
from .corpus import PHRASEBOOK_VERSION, Pair, Split, sentences

__all__ = ["HELD_OUT", "PHRASEBOOK_VERSION", "Pair", "Split", "sentences"]
