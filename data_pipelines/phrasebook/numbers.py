"""Numbers and times of day as they are spoken."""

from .lexemes import Bilingual, table

# 0 to 19, then 20, 30, ... 90.
_ENGLISH, _GERMAN = ([row[side] for row in table("numbers")] for side in ("english", "german"))


def _english(number: int) -> str:
    """Spell a number: twenty-three; four hundred sixty-two."""
    if number >= 100:
        unit, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
        rest = f" {_english(number % unit)}" if number % unit else ""
        return f"{_ENGLISH[number // unit]} {name}{rest}"
    if number < 20:
        return _ENGLISH[number]
    return _ENGLISH[number // 10 + 18] + (f"-{_ENGLISH[number % 10]}" if number % 10 else "")


def _german(number: int) -> str:
    """Spell a number as one word, the unit before the ten: vierhundertzweiundsechzig."""
    if number >= 100:
        unit, name = (1000, "tausend") if number >= 1000 else (100, "hundert")
        return _bound(number // unit) + name + (_german(number % unit) if number % unit else "")
    if number < 20:
        return _GERMAN[number]
    return (f"{_bound(number % 10)}und" if number % 10 else "") + _GERMAN[number // 10 + 18]


def _bound(digit: int) -> str:
    """Drop the s of `eins` where something follows: einundzwanzig, einhundert."""
    return "ein" if digit == 1 else _GERMAN[digit]


def number(value: int) -> Bilingual:
    """Spell a number from 0 to 9999 in both languages."""
    return Bilingual(_english(value), _german(value))


def year(value: int) -> Bilingual:
    """Spell a year from 1900 to 2099: nineteen eighty-four, neunzehnhundertvierundachtzig."""
    century, rest = divmod(value, 100)
    english, german = _english(value), _german(value)
    if century != 20 or rest >= 10:
        tail = f"oh {_ENGLISH[rest]}" if 0 < rest < 10 else _english(rest)
        english = f"{_english(century)} {tail if rest else 'hundred'}"
    if century < 20:
        german = f"{_german(century)}hundert{_german(rest) if rest else ''}"
    return Bilingual(english, german)


def clock(hour: int, minute: int) -> Bilingual:
    """Spell a time on a twelve-hour clock, minutes in fives: half past three is halb vier."""
    following = hour % 12 + 1
    near, word, named = (minute, "past", hour) if minute <= 30 else (60 - minute, "to", following)
    spoken = {15: "a quarter", 30: "half"}.get(near) or _english(near)
    english = f"{spoken} {word} {_ENGLISH[named]}" if near else f"{_ENGLISH[hour]} o'clock"
    # German counts from the half hour around it: fünf vor halb vier is 3:25.
    halves = {25: "fünf vor halb", 30: "halb", 35: "fünf nach halb"}
    spoken = "Viertel" if near == 15 else _german(near)
    if minute == 0:
        german = f"{_bound(hour)} Uhr"
    elif minute in halves:
        german = f"{halves[minute]} {_GERMAN[following]}"
    else:
        german = f"{spoken} {'nach' if minute < 30 else 'vor'} {_GERMAN[named]}"
    return Bilingual(english, german)
