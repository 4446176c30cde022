"""An English-German corpus that needs no download: a grammar that makes parallel sentences.

`sentences("train", 100_000)` gives as many pairs as wanted, the same ones everywhere. The German
has the word order that makes simultaneous translation hard: verbs at the end of subordinate
clauses, prefixes that leave their verbs, participles and infinitives last, the verb second
whatever comes first. Half of the test split is made of `HELD_OUT` compositions of constructions,
which train and valid lack, out of words and parts that train has; so memorising does not help.

The words and their forms are in the tables of `lexicon/`, which `lexemes` loads. `nominals`
declines noun phrases and has the meaning of a clause, `english` and `german` say it, and `say`
fills templates of both languages. `draw` chooses at random, `frames` and `fixed` build sentences,
`constructions` lists them with their weights, and `corpus` divides them into splits.
"""

from .constructions import HELD_OUT
from .corpus import PHRASEBOOK_VERSION, Pair, Split, sentences

__all__ = ["HELD_OUT", "PHRASEBOOK_VERSION", "Pair", "Split", "sentences"]
