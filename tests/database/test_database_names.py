"""Names of projects and keys of ids."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspider_lite.database.names import KEY_LENGTH, store_key, verify_project_name


@pytest.mark.parametrize("name", ["a", "Shop_1", "_", "9", "a" * 64, "select", "taskdb_x"])
def test_good_names(name: str) -> None:
    assert verify_project_name(name)


@pytest.mark.parametrize("name", ["", "a" * 65, "a-b", "a b", "a/b", "..", "商", "é", "a\n", "ProjectDB", "sqlite_a"])
def test_bad_names(name: str) -> None:
    assert not verify_project_name(name)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=200))
def test_a_key_fits_its_column_and_the_id_can_be_told(taskid: str) -> None:
    key, full = store_key(taskid)
    assert 0 < len(key) <= KEY_LENGTH
    assert key.isascii()
    assert key == key.rstrip()
    assert taskid == (key if full is None else full)


def test_usual_ids_are_their_own_key() -> None:
    for taskid in ("d41d8cd98f00b204e9800998ecf8427e", "on_start", "x" * 64, "a b"):
        assert store_key(taskid) == (taskid, None)
    assert store_key("x" * 65)[0] != store_key("x" * 66)[0]
