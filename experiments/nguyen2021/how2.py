"""Nguyen et al. 2021 on How2 en-pt, in the paper's size: table 2 and figure 2.

    simuljax prepare how2 --from HOW2_ROOT --to data/how2-speed --augment speed
    simuljax ablate experiments/nguyen2021/how2.py --grid table
    simuljax ablate experiments/nguyen2021/how2.py --grid figure_2

The paper trains on How2 and MuST-C en-pt together and tests on MuST-C (offline, greedily: 25.07
BLEU; 26.91 with a beam of 10), where `--corpus data/must-c-pt` has `simuljax evaluate` test a run.
Not run by this project, because neither corpus may be redistributed.
"""

from dataclasses import replace

from experiments.nguyen2021.must_c import RECIPE as MUST_C
from experiments.nguyen2021.recipe import grids, variants
from simuljax.config.experiment import DATA, RUNS

RECIPE = replace(
    MUST_C,
    name="How2 en-pt",
    runs=RUNS / "nguyen-how2",
    data=replace(MUST_C.data, directory=DATA / "how2-speed"),
    tests=("test",),
    length_ratio=1.6,
)

EXPERIMENTS = variants(RECIPE)
GRIDS = grids(RECIPE)
