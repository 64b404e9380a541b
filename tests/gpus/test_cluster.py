"""Clusters as people write them."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuloom.errors import InputError
from gpuloom.gpus.catalogue import MODELS
from gpuloom.gpus.cluster import IdleGpus, parse_cluster


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("8xA100-40GB", [("A100-40GB", 8)]),
        ("16x4xV100", [("V100-16GB", 4)] * 16),
        ("4xA100-40GB,2x8xH100", [("A100-40GB", 4)] + [("H100-SXM-80GB", 8)] * 2),
        ("A100-40GB", [("A100-40GB", 1)]),
        ("000000000002xT4", [("T4-16GB", 2)]),
        ("rtx-pro-6000", [("RTX-PRO-6000-96GB", 1)]),
        (" 2 x T4 , 1Xa30 ", [("T4-16GB", 2), ("A30-24GB", 1)]),
    ],
)
def test_written_clusters(text: str, nodes: list[tuple[str, int]]) -> None:
    cluster = parse_cluster(text)
    assert [gpu.index for gpu in cluster.gpus] == list(range(len(cluster)))
    assert [(cluster.gpus[gpus[0]].model.name, len(gpus)) for gpus in cluster.nodes.values()] == nodes
    assert list(cluster.nodes) == list(range(len(nodes)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "8",
        "8x",
        "xA100",
        "0xA100",
        "4x0xA100",
        "-1xA100",
        "1.5xA100",
        "8xA100,",
        "2x2x2xA100",
        "8xB900",
        "1000001xA100",
        "1000x1001xA100",
        "1000000xT4,1xT4",
        "9" * 5000 + "xT4",
        "٣xA100",
    ],
)
def test_nonsense_gets_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_cluster(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.sampled_from(list(MODELS)))
def test_nodes_times_gpus(nodes: int, each: int, name: str) -> None:
    cluster = parse_cluster(f"{nodes}x{each}x{name}")
    assert len(cluster) == nodes * each
    assert {len(gpus) for gpus in cluster.nodes.values()} == {each}
    assert {gpu.model for gpu in cluster.gpus} == {MODELS[name]}


@settings(deadline=None)
@given(st.text(alphabet="012xXA100V-GBT4, ", max_size=9))
def test_any_text_is_a_cluster_or_an_input_error(text: str) -> None:
    with suppress(InputError):
        assert len(parse_cluster(text)) > 0


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=6), wanted=st.integers(0, 12))
def test_first_is_what_take_would_give(counts: list[int], wanted: int) -> None:
    cluster = parse_cluster(f"{len(counts)}x5xT4")
    idle = IdleGpus(cluster, [node * 5 + gpu for node, count in enumerate(counts) for gpu in range(count)])
    before = idle.total
    assert idle.first(wanted) == idle.copy().take(wanted)
    assert idle.total == before
