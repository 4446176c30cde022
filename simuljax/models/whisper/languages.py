"""The languages that Whisper knows, in the order of their tokens; Cantonese from large-v3 on."""

_TABLE = """
en English, zh Chinese, de German, es Spanish, ru Russian, ko Korean, fr French, ja Japanese,
pt Portuguese, tr Turkish, pl Polish, ca Catalan, nl Dutch, ar Arabic, sv Swedish, it Italian,
id Indonesian, hi Hindi, fi Finnish, vi Vietnamese, he Hebrew, uk Ukrainian, el Greek, ms Malay,
cs Czech, ro Romanian, da Danish, hu Hungarian, ta Tamil, no Norwegian, th Thai, ur Urdu,
hr Croatian, bg Bulgarian, lt Lithuanian, la Latin, mi Maori, ml Malayalam, cy Welsh, sk Slovak,
te Telugu, fa Persian, lv Latvian, bn Bengali, sr Serbian, az Azerbaijani, sl Slovenian,
kn Kannada, et Estonian, mk Macedonian, br Breton, eu Basque, is Icelandic, hy Armenian,
ne Nepali, mn Mongolian, bs Bosnian, kk Kazakh, sq Albanian, sw Swahili, gl Galician, mr Marathi,
pa Punjabi, si Sinhala, km Khmer, sn Shona, yo Yoruba, so Somali, af Afrikaans, oc Occitan,
ka Georgian, be Belarusian, tg Tajik, sd Sindhi, gu Gujarati, am Amharic, yi Yiddish, lo Lao,
uz Uzbek, fo Faroese, ht Haitian Creole, ps Pashto, tk Turkmen, nn Nynorsk, mt Maltese,
sa Sanskrit, lb Luxembourgish, my Myanmar, bo Tibetan, tl Tagalog, mg Malagasy, as Assamese,
tt Tatar, haw Hawaiian, ln Lingala, ha Hausa, ba Bashkir, jw Javanese, su Sundanese,
yue Cantonese
"""

_ENTRIES = [entry.split(maxsplit=1) for entry in _TABLE.split(",")]
LANGUAGES: dict[str, str] = {code: name.strip() for code, name in _ENTRIES}

# Words are not separated by spaces in these.
UNSPACED = ("zh", "ja", "th", "lo", "my", "yue")

_BY_NAME = {name.lower(): code for code, name in LANGUAGES.items()}


def language_code(language: str) -> str:
    """`fr` of `fr`, `FR` or `French`; anything that Whisper does not know is refused."""
    wanted = language.strip().lower()
    code = _BY_NAME.get(wanted, wanted)
    if code not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ValueError(f"Whisper knows no language {language!r}; choose one of {known}")
    return code
