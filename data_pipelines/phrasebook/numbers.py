"""Numbers and times of day as they are spoken."""

from .lexemes import Bilingual

_ENGLISH_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen
"""
_GERMAN_WORDS = """
null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn
fünfzehn sechzehn siebzehn achtzehn neunzehn
"""
_ENGLISH_TEN_WORDS = "twenty thirty forty fifty sixty seventy eighty ninety"
_GERMAN_TEN_WORDS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig"
_ENGLISH, _GERMAN = _ENGLISH_WORDS.split(), _GERMAN_WORDS.split()
_ENGLISH_TENS, _GERMAN_TENS = _ENGLISH_TEN_WORDS.split(), _GERMAN_TEN_WORDS.split()
LARGEST = 9999


def _check(number: int) -> None:
    if not 0 <= number <= LARGEST:
        raise ValueError(f"number is {number}: only 0 to {LARGEST} can be spelled out")


def english_number(number: int) -> str:
    """Spell a number: twenty-three; four hundred sixty-two."""
    _check(number)
    if number >= 100:
        unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
        rest = f" {english_number(number % unit)}" if number % unit else ""
        return f"{_ENGLISH[number // unit]} {name}{rest}"
    if number < 20:
        return _ENGLISH[number]
    ones = f"-{_ENGLISH[number % 10]}" if number % 10 else ""
    return _ENGLISH_TENS[number // 10 - 2] + ones


def german_number(number: int) -> str:
    """Spell a number as one word, the unit before the ten: vierhundertzweiundsechzig."""
    _check(number)
    if number >= 100:
        unit, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
        rest = german_number(number % unit) if number % unit else ""
        return _bound(number // unit) + name + rest
    if number < 20:
        return _GERMAN[number]
    ones = f"{_bound(number % 10)}und" if number % 10 else ""
    return ones + _GERMAN_TENS[number // 10 - 2]


def _bound(digit: int) -> str:
    """Drop the s of `eins` where something follows: einundzwanzig, einhundert."""
    return "ein" if digit == 1 else _GERMAN[digit]


def number(value: int) -> Bilingual:
    """Spell a number in both languages."""
    return Bilingual(english_number(value), german_number(value))


def year(value: int) -> Bilingual:
    """Spell a year: nineteen eighty-four, neunzehnhundertvierundachtzig; from 2000 on a number."""
    century, rest = divmod(value, 100)
    if century == 20 and rest < 10:
        english = english_number(value)
    else:
        tail = f"oh {_ENGLISH[rest]}" if 0 < rest < 10 else english_number(rest)
        english = f"{english_number(century)} {tail if rest else 'hundred'}"
    german = german_number(value)
    if century < 20:
        german = f"{german_number(century)}hundert{german_number(rest) if rest else ''}"
    return Bilingual(english, german)


def clock(hour: int, minute: int) -> Bilingual:
    """Spell a time on a twelve-hour clock, minutes in fives: half past three is halb vier."""
    following = hour % 12 + 1
    near, word, named = (minute, "past", hour) if minute <= 30 else (60 - minute, "to", following)
    spoken = {15: "a quarter", 30: "half"}.get(near) or english_number(near)
    english = f"{spoken} {word} {_ENGLISH[named]}" if near else f"{_ENGLISH[hour]} o'clock"
    return Bilingual(english, _german_clock(hour, minute))


def _german_clock(hour: int, minute: int) -> str:
    """Count from the half hour around it, as German does: fünf vor halb vier is 3:25."""
    following = _GERMAN[hour % 12 + 1]
    if minute == 0:
        return f"{_bound(hour)} Uhr"
    if minute in (25, 30, 35):
        return {25: "fünf vor ", 30: "", 35: "fünf nach "}[minute] + f"halb {following}"
    near = min(minute, 60 - minute)
    spoken = "Viertel" if near == 15 else german_number(near)
    return f"{spoken} nach {_GERMAN[hour]}" if minute < 30 else f"{spoken} vor {following}"
