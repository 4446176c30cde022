#!/bin/bash
# Grids beside each other on one GPU:
#
#     experiments/launch/one_gpu.sh TEXT experiments/zaidi2022/table_3.py experiments/zaidi2022/dar.py
#
# TEXT holds Multi30k as its authors call it: train, val, test_2016_flickr, test_2017_flickr,
# test_2017_mscoco and test_2018_flickr, each .en and .de. The names matter: they choose the voices
# and, with the contents of the corpus, the hashes in the names of the runs.
#
# Grids beside each other slow each other down: start a grid that measures time alone.
#
# WORKERS (6) are the processes of each grid, TOGETHER (4) the runs to a process. CUDA MPS lets
# processes compute side by side, where it is installed; without it they take turns. After an
# interruption start the same command again: it resumes.

set -eu
text=${1:?usage: $0 TEXT GRID.py ...}
shift
corpus=data/multi30k-speech
[ -e "$corpus/summary.json" ] || .venv/bin/simuljax speak "$text" --to "$corpus"

if control=$(command -v nvidia-cuda-mps-control || ls /usr/local/nvidia/bin/nvidia-cuda-mps-control 2> /dev/null); then
    export CUDA_MPS_PIPE_DIRECTORY=${TMPDIR:-/tmp}/simuljax-mps CUDA_MPS_LOG_DIRECTORY=${TMPDIR:-/tmp}/simuljax-mps
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
    "$control" -d || true # it may be there already
fi

for grid in "$@"; do
    .venv/bin/simuljax ablate "$grid" --workers "${WORKERS:-6}" --together "${TOGETHER:-4}" &
done
wait
for grid in "$@"; do
    .venv/bin/simuljax ablate "$grid" --report --publish
done
