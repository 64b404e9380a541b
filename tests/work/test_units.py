"""Human units, and how their mistakes are told."""

import pytest

from gpuloom.work import units


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        (12000, 12000),
        ("12000", 12000),
        ("12000MiB", 12000),
        ("12000 M", 12000),
        ("12G", 12288),
        ("12gb", 12288),
        ("7.5GiB", 7680),
        ("1T", 1048576),
        (" 1Gi ", 1024),
        ("0.5M", 1),
    ],
)
def test_memory(text: object, mib: int) -> None:
    assert units.memory_mib(text) == mib


@pytest.mark.parametrize(
    "wrong", ["", "12Q", "G", "-1G", "1e9G", "0", 0, -5, 1.5, True, None, [], "٣G", "9" * 50, 10**60]
)
def test_wrong_memory(wrong: object) -> None:
    with pytest.raises(ValueError, match="but must be memory such as 12G, 12000MiB or a number of MiB"):
        units.memory_mib(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (45, 45.0),
        (1.5, 1.5),
        ("45", 45.0),
        ("45s", 45.0),
        ("90m", 5400.0),
        ("90min", 5400.0),
        ("2h", 7200.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1d", 86400.0),
        ("250ms", 0.25),
        ("0", 0.0),
        ("1.5H", 5400.0),
    ],
)
def test_seconds(text: object, expected: float) -> None:
    assert units.seconds(text) == expected


@pytest.mark.parametrize(
    "wrong",
    ["", "2 weeks", "h", "-1h", "1h30", "nan", "1e3s", -1, float("nan"), float("inf"), True, None, 10**60, "9" * 14],
)
def test_wrong_seconds(wrong: object) -> None:
    with pytest.raises(ValueError, match="but must be a time such as 2h, 90m, 45s or a number of seconds"):
        units.seconds(wrong)


def test_a_latency_must_carry_its_unit() -> None:
    assert units.milliseconds("40ms") == 40.0
    assert units.milliseconds("0.5s") == 500.0
    for wrong in (40, "40", "0ms", "", None, True):
        with pytest.raises(ValueError, match="such as 40ms or"):
            units.milliseconds(wrong)


def test_priority() -> None:
    assert [units.priority(text) for text in ("low", "Normal", "high", "-3", 7)] == [-10, 0, 10, -3, 7]
    for wrong in ("urgent", 1.5, True, None, 10**9, "9" * 50):
        with pytest.raises(ValueError, match="but must be low, normal, high or a whole number"):
            units.priority(wrong)
    with pytest.raises(ValueError, match=r"\(did you mean 'high'\?\)"):
        units.priority("hgh")


def test_a_number_too_long_to_print_is_refused_like_any_other() -> None:
    for parse in (units.memory_mib, units.seconds, units.milliseconds, units.priority):
        with pytest.raises(ValueError, match="is a number of more than 40 digits, but must be"):
            parse(10**5000)
