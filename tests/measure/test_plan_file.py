"""Plans as people write them in YAML, good and bad."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import MODELS
from gpuloom.measure.explore.wanted import Exploring, read_wanted
from gpuloom.measure.plan import Bounds, Plan, Repeats, Telling, Ways, Workload, arrangements
from gpuloom.measure.plan_file import json_schema, read_plan

STUDY = Path(__file__).resolve().parents[2] / "examples" / "mig_study.yaml"

GOOD = r"""
workloads:
  - name: small
    command: python train.py --size small
    memory: 4G
    output: 'step (\d+)'
    env: {BATCH: "64"}
  - name: big
    command: [python, train.py]
    progress_file: out/progress.json
ways: [parallel, shares]
shares: [50, 12.5]
layouts: ["3g.20gb (big) + 2 x 2g.10gb (small)"]
steps: 50
seconds: 1m
repeat: 10
budget: 2h
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


def test_all_of_it_is_read(tmp_path: Path) -> None:
    plan, _ = read_plan(write(tmp_path, GOOD))
    assert plan == Plan(
        (
            Workload(
                "small",
                ("python", "train.py", "--size", "small"),
                4096,
                Telling.OUTPUT,
                r"step (\d+)",
                (("BATCH", "64"),),
            ),
            Workload("big", ("python", "train.py"), None, Telling.FILE, "out/progress.json"),
        ),
        (Ways.PARALLEL, Ways.SHARES),
        shares_pct=(50.0, 12.5),
        layouts=("3g.20gb (big) + 2 x 2g.10gb (small)",),
        bounds=Bounds(50, 60.0),
        repeats=Repeats(10, 10),
        budget_s=7200.0,
    )
    jsonschema.validate(yaml.safe_load(GOOD), json_schema())


def test_a_plan_for_a_goal(tmp_path: Path) -> None:
    text = "workloads: [{name: a, command: x}]\nfor: deadline 20000 in 3h\nruns: 40%\n"
    plan, _ = read_plan(write(tmp_path, text))
    assert (plan.ways, plan.exploring) == ((Ways.ALONE,), Exploring(read_wanted("deadline 20000 in 3h"), 40.0))
    jsonschema.validate(yaml.safe_load(text), json_schema())
    assert "for" in json_schema()["properties"]


def test_the_study_is_27_arrangements_on_an_a100() -> None:
    plan, _ = read_plan(STUDY)
    assert len(arrangements(plan, MODELS["A100-40GB"])[0]) == 27
    jsonschema.validate(yaml.safe_load(STUDY.read_text()), json_schema())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("jobs: []", "line 1, jobs is not a known field: accepted are workloads, ways, profiles"),
        ("workloads: []", "workloads is a list, but must be a list of 1 or more"),
        ("workloads: [{name: a}]", "line 1, workloads[0].command is missing: expected a value for it"),
        ("workloads: [{name: a, comand: x}]", "workloads[0].comand is not a known field (did you mean 'command'?)"),
        (
            "workloads: [{name: a (b), command: x}]",
            "is 'a (b)', but must be a text of 1 to 100 characters, no brackets",
        ),
        (
            "workloads: [{name: 'a, b', command: x}]",
            "is 'a, b', but must be a text of 1 to 100 characters, no brackets, no plus signs, no commas",
        ),
        ("workloads: [{name: a, command: x}, {name: a, command: y}]", "which an earlier workload already has"),
        ("workloads: [{name: a, command: x, output: 'step ('}]", "which is no regular expression"),
        ("workloads: [{name: a, command: x, output: '(a)(b)'}]", "which has 2 groups"),
        (
            "workloads: [{name: a, command: x, progress_file: /etc/passwd}]",
            "must be a file below the copy's own folder",
        ),
        ("workloads: [{name: a, command: x, progress_file: ../x}]", "must be a file below the copy's own folder"),
        ("workloads: [{name: a, command: x, progress_file: y, output: z}]", "is given, and output too"),
        ("workloads: [{name: a, command: x, env: {A: 1}}]", "must be a mapping of variables to texts"),
        ("workloads: [{name: a, command: x, env: {GPULOOM_JOB: b}}]", "which gpuloom sets itself"),
        (
            f"workloads: [{{name: a, command: x}}, {{name: b, command: x, env: {{BIG: '{'x' * 140_000}'}}}}]",
            "line 1, workloads[1].env.BIG has a text of 140,004 bytes, which cannot be handed to a program",
        ),
        (
            f"workloads: [{{name: a, command: [x, '{'x' * 140_000}']}}]",
            "line 1, workloads[0].command has a text of 140,000 bytes",
        ),
        ("workloads: [{name: a, command: x}]\nways: [apart]", "must be 'alone', 'parallel', 'shares' or 'together'"),
        ("workloads: [{name: a, command: x}]\nways: []", "ways is empty, and there are no layouts"),
        ("workloads: [{name: a, command: x}]\nways: [alone]\nshares: [50]", "ways does not have shares: add it there"),
        ("workloads: [{name: a, command: x}]\nshares: [100]", "line 2, shares[0] is 100"),
        ("workloads: [{name: a, command: x}]\ntogether: [1]", "together[0] is 1, but must be 2 or more"),
        ("workloads: [{name: a, command: x}]\nsteps: many", "steps is 'many', but must be a whole number"),
        ("workloads: [{name: a, command: x}]\nseconds: 0", "seconds is 0, but must be a time above 0"),
        ("workloads: [{name: a, command: x}]\nrepeat: 3\nmost: 2", "line 3, most is 2, but must be 3 or more"),
        ("workloads: [{name: a, command: x}]\nfor: speed", "line 2, for is 'speed', but must be one-copy, most-work"),
        ("workloads: [{name: a, command: x}]\nfro: one-copy", "fro is not a known field (did you mean 'for'?)"),
        ("workloads: [{name: a, command: x}]\nruns: 2", "line 2, runs is given, but not what for"),
        ("workloads: [{name: a, command: x}]\nfor: set\nruns: 0%", "line 3, runs is '0%', but must be a part of all"),
        ("workloads: [{name: a, command: x}]\nfor: set\nmost: 2", "line 3, most is given, and for: with it every"),
        ("workloads: [{name: a, command: x}]\nfor: set\nways: [parallel]", "for set: ways has parallel"),
        ("workloads: [{name: a, command: x}]\nfor: set a,b", "'b' is no workload of the plan; accepted: a"),
        ("workloads: [{name: a, command: x}]\nsteps: 1\nsteps: 2", "gives 'steps' a second time"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_plan(path)
    assert sentence in str(error.value)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
