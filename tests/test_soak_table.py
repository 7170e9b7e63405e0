"""What `bench.soak` makes of its looks: growth after the warm-up, and when that is too much."""

from pyspider_lite.bench.soak import Growth, Sample, growths, table

FILES, RSS = ("fetcher 7", "files"), ("fetcher 7", "RSS, MB")


def test_only_what_comes_after_the_warm_up_counts() -> None:
    samples = [Sample(float(second), {RSS: 50.0 + min(second, 20)}) for second in range(61)]
    assert growths(samples, 20.0) == [Growth(*RSS, 70.0, 70.0, 70.0)]
    assert not growths(samples, 20.0)[0].too_much
    assert growths(samples, 0.0)[0].too_much


def test_medians_of_the_first_and_the_last_quarter_are_compared() -> None:
    samples = [Sample(float(second), {RSS: 90.0 if second == 58 else 50.0 + second / 20}) for second in range(61)]
    (row,) = growths(samples, 20.0)
    assert (row.first, row.last, row.peak) == (51.25, 52.75, 90.0)


def test_of_open_files_the_lowest_numbers_are_compared() -> None:
    """Connections that are kept open after a burst come and go, what is forgotten stays."""
    bursts = [Sample(float(second), {FILES: 19.0 + 8 * (second > 50 and second % 5 > 0)}) for second in range(61)]
    assert not growths(bursts, 20.0)[0].too_much
    leak = [Sample(float(second), {FILES: 19.0 + second // 8}) for second in range(61)]
    assert growths(leak, 20.0)[0].too_much


def test_what_was_not_there_all_the_time_is_not_judged() -> None:
    samples = [Sample(float(second), {FILES: 20.0} if second < 50 else {}) for second in range(61)]
    assert growths(samples, 20.0) == []
    assert growths(samples[:1], 20.0) == []


def test_too_much_is_five_percent_and_more_than_comes_and_goes() -> None:
    assert Growth(*RSS, 50.0, 52.6, 60.0).too_much
    assert not Growth(*RSS, 50.0, 52.4, 60.0).too_much
    assert not Growth(*FILES, 10.0, 13.0, 13.0).too_much
    assert Growth(*FILES, 10.0, 14.0, 14.0).too_much
    assert Growth("broker", "messages", 0.0, 60.0, 60.0).too_much


def test_the_table() -> None:
    rows = [Growth(*RSS, 50.0, 55.0, 60.0), Growth("broker", "messages", 0.0, 2.0, 9.0)]
    assert table(rows)[2:] == [
        "| fetcher 7 | RSS, MB | 50.0 | 55.0 | +10.0 % | 60.0 | too much",
        "| broker | messages | 0.0 | 2.0 | - | 9.0 |",
    ]
