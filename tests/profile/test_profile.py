"""Measurements, their tables and their JSON."""

import json

import jax.numpy as jnp
import pytest

from simuljax.cli.main import main
from simuljax.profile.measure import Traced, by_part, count_kernels, dearest, measure, origins

MODULE = """HloModule jit_f

%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %add = f32[4]{0} add(%p, %p)
}

ENTRY %main.4 (Arg_0: f32[4]) -> (f32[4], f32[4]) {
  %Arg_0 = f32[4]{0} parameter(0)
  %constant = s32[320]{0} constant({...})
  %call = (f32[4]{0}, f32[4]{0}) custom-call(%constant, %Arg_0), custom_call_target="kernel"
  %get = f32[4]{0} get-tuple-element(%call), index=0
  %loop_fusion = f32[4]{0} fusion(%get), kind=kLoop, calls=%fused
  ROOT %tuple = (f32[4]{0}, f32[4]{0}) tuple(%get, %loop_fusion)
}
"""
TRACED = """
  %fusion.1 = f32[4] fusion(%p), metadata={op_name="jit(f)/jvp(front_end)/fft"}
  %dot.7 = f32[4] custom-call(%p), metadata={op_name="jit(f)/transpose(jvp(decode))/dot"}
  ROOT %copy.2 = f32[4] copy(%p)
"""


def test_measure_and_count_kernels_of_the_entry_only():
    assert count_kernels(MODULE) == 2
    cost = measure(lambda x: jnp.sin(x).sum(), jnp.ones(1000), rounds=2, round_s=0.01)
    assert cost.ms > 0 and cost.compile_s > 0 and cost.kernels >= 1


def test_time_goes_to_the_first_part_whose_pattern_fits():
    origin = origins(TRACED)
    traced = Traced(ms={"fusion.1": 2.0, "dot.7": 3.0, "copy.2": 0.5}, kernels=3)
    spent = by_part(traced, origin, {"front end": "front_end", "decoder": "decode"})
    assert spent == {"front end": 2.0, "decoder": 3.0, "other": 0.5}
    assert dearest(traced, origin, 1) == [
        {"ms": 3.0, "op": "dot.7", "from": "jit(f)/transpose(jvp(decode))/dot"}
    ]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ([], "profile"),
        (["profile", "alignment", "--size", "8x8"], "--sizes"),
        (["profile", "alignment", "--sizes", "8by8"], "64x512"),
        (["profile", "alignment", "--methods", "quick"], "exact"),
    ],
)
def test_bad_use_exits_2_and_says_what_to_do(words, hint, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2 and hint in capsys.readouterr().err


@pytest.mark.slow
def test_profile_alignment_writes_what_it_shows(tmp_path, capsys):
    path, small = tmp_path / "deep" / "alignment.json", ["--sizes", "8x12", "--problems", "2"]
    main(["profile", "alignment", *small, "--json", str(path)])
    report, shown = json.loads(path.read_text()), capsys.readouterr().out
    exact = next(row for row in report["rows"] if row["method"] == "exact")
    assert exact["error"] < 1e-6 and exact["gradient_error"] < 1e-5
    assert "closed_form" in shown and "auto at 8x12: exact" in shown
    main(["profile", "alignment", *small, "--methods", "exact", "--json"])
    assert json.loads(capsys.readouterr().out)["problems"] == 2


@pytest.mark.slow
def test_profile_train_divides_the_update_into_parts(tmp_path):
    path = tmp_path / "train.json"
    sizes = {"utterances": 4, "frames": 60, "targets": 5, "sources": 5, "vocabulary": 20}
    main(["profile", "train", "--preset", "tiny", "--dtype", "float32", "--updates", "2",
          "--no-unroll", "--json", str(path),
          *(word for k, v in sizes.items() for word in (f"--{k}", str(v)))])  # fmt: skip
    report = json.loads(path.read_text())
    spent = report["parts_ms"]
    assert report["ms"] > 0 and report["compile_s"] > 0 and report["kernels"] > 100
    for name in ("front end", "speech encoder", "text encoder", "decoder", "optimiser", "DAR"):
        assert spent[name] > 0, spent
    assert spent["other"] < 0.3 * sum(spent.values()), spent
    assert sum(spent.values()) == pytest.approx(report["device_ms"])
