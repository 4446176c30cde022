#!/bin/bash
# Corpora of en_de.py here, and of text_rich.py and training_voices.py in experiments/zaidi2022:
#
#     experiments/real_speech/corpora.sh TATOEBA.zip [MULTI30K KOKORO IWSLT]
#
# TATOEBA.zip is deu-eng.zip, English-German pairs of sentences; training needs no more. For the
# tests MULTI30K holds test_2016_flickr.en and .de, KOKORO 500 of these captions in 28 natural
# voices, IWSLT the non-native task of IWSLT 2020. KOKORO and IWSLT have a .tsv of their sentences,
# which are left out of the training text: give all four from the start if you will test.
#
# Synthesis takes 2 minutes on 16 cores, 17 on 2. After an interruption start the same command again.

set -euo pipefail
if [ $# != 1 ] && [ $# != 4 ]; then
    echo "usage: $0 TATOEBA.zip [MULTI30K KOKORO IWSLT]" >&2
    exit 2
fi
export PATH="$PWD/.venv/bin:$PATH"
data=${SIMULJAX_DATA:-data}
home=$data/real_speech

build() { # build DIRECTORY COMMAND ...
    [ -e "$1/summary.json" ] || simuljax "${@:2}" --to "$1"
}

tests=()
[ $# = 1 ] || tests=("$4"/*.tsv "$3"/*.tsv)
sentences=$(cat /dev/null "${tests[@]}" | sha256sum)
if [ ! -e "$home/text" ]; then
    python -m experiments.real_speech.text "$1" --exclude "${tests[@]}" --to "$home/text.part"
    echo "$sentences" > "$home/text.part/excluded.sha256"
    mv "$home/text.part" "$home/text"
elif [ $# = 4 ] && [ "$sentences" != "$(cat "$home/text/excluded.sha256" 2> /dev/null)" ]; then
    echo "$home/text may hold sentences of $3 and $4: remove $home and start again" >&2
    exit 1
fi
build "$home/pairs" prepare parallel-text --from "$home/text/text"
build "$home/espeak" speak "$home/text/speech"
build "$home/voices" speak "$home/text/speech" --engine both
[ $# = 4 ] || exit 0

mkdir -p "$home/captions"
for language in en de; do
    head -n 500 "$2/test_2016_flickr.$language" > "$home/captions/test.$language"
done
build "$data/multi30k-espeak" speak "$home/captions"
build "$data/multi30k-kokoro" prepare multi30k-speech --from "$3" --translations "$2"
build "$data/iwslt-nonnative" prepare iwslt-nonnative --from "$4"
