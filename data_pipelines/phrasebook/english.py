"""English morphology: plurals, articles, verb forms and comparison."""

import re

from .lexemes import Adjective, Agreement, Verb

_DOUBLED = frozenset(
    ["put", "get", "run", "swim", "sit", "forget", "begin", "plan", "hug", "stop", "cut", "set"]
)
_BE: dict[str, str] = {"ich": "am", "er": "is"}
_WAS: dict[str, str] = {"ich": "was", "er": "was"}
_NEGATED = {"can": "can't", "will": "won't", "am": "am not", "may": "may not"}
_COMPARED = {"narrow": ("narrower", "narrowest"), "shy": ("shyer", "shyest")}
_SIBILANT = re.compile(r"(s|x|z|ch|sh)$")
_Y_AFTER_CONSONANT = re.compile(r"[^aeiou]y$")


def with_s(word: str) -> str:
    """The ending of plurals and of the third person: dogs, boxes, parties, watches."""
    if _Y_AFTER_CONSONANT.search(word):
        return word[:-1] + "ies"
    return word + ("es" if _SIBILANT.search(word) else "s")


def regular_plural(noun: str) -> str:
    """The plural of a noun that is not listed with one."""
    return with_s(noun)


def article(following: str) -> str:
    """A or an, before what is said next."""
    first = following.split()[0]
    vowel = first[0] in "aeiou" and not first.startswith(("uni", "useful"))
    return "an" if vowel or first == "honest" else "a"


def regular_past(base: str) -> str:
    """The past and participle of a verb that is not listed with them."""
    if base in _DOUBLED:
        return base + base[-1] + "ed"
    if _Y_AFTER_CONSONANT.search(base):
        return base[:-1] + "ied"
    return base + ("d" if base.endswith("e") else "ed")


def gerund(base: str) -> str:
    """Calling, putting, writing, lying."""
    if base in _DOUBLED:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    drops_e = base.endswith("e") and not base.endswith("ee") and base != "be"
    return (base[:-1] if drops_e else base) + "ing"


def be(agreement: Agreement) -> str:
    """Am, is, are."""
    return _BE.get(agreement, "are")


def was(agreement: Agreement) -> str:
    """Was, were."""
    return _WAS.get(agreement, "were")


def present(base: str, agreement: Agreement) -> str:
    """The simple present: I call, he calls, he has, he goes."""
    if base == "be":
        return be(agreement)
    if agreement != "er":
        return base
    return {"have": "has", "go": "goes", "do": "does"}.get(base) or with_s(base)


def past(verb: Verb, agreement: Agreement) -> str:
    """The simple past."""
    return was(agreement) if verb.english == "be" else verb.english_past


def negated(auxiliary: str) -> str:
    """Doesn't, won't, can't."""
    return _NEGATED.get(auxiliary, auxiliary + "n't")


def comparison(adjective: Adjective) -> tuple[str, str]:
    """The comparative and the superlative: older, oldest; more careful, most careful."""
    word = adjective.english
    if word in _COMPARED:
        return _COMPARED[word]
    if word.endswith("y"):
        return word[:-1] + "ier", word[:-1] + "iest"
    syllables = len(re.findall(r"[aeiou]+", word.removesuffix("e")))
    if syllables > 1:
        return f"more {word}", f"most {word}"
    if re.search(r"[^aeiou][aeiou][bdgmnpt]$", word):
        word += word[-1]
    stem = word.removesuffix("e")
    return stem + "er", stem + "est"
