"""CPU counts and ordered maps over threads."""

import os
import threading

import pytest

from ddh._core import threads


def test_cpu_count_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert threads.cpu_count() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.cpu_count() == 1


@pytest.mark.parametrize(("asked", "used"), [("", 4), ("2", 2), ("2,1", 2), ("9", 4), ("x", 4)])
def test_omp_num_threads_is_a_limit(asked: str, used: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads, "cpu_count", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert threads.omp_threads() == used


@pytest.mark.parametrize("count", [None, 1, 3, 50])
def test_results_are_in_the_order_of_the_items(count: int | None):
    assert threads.thread_map(lambda i: i * i, range(20), count) == [i * i for i in range(20)]
    assert list(threads.thread_imap(str, range(20), count)) == [str(i) for i in range(20)]


def test_one_item_starts_no_thread():
    here = threading.current_thread()
    assert threads.thread_map(lambda _: threading.current_thread(), [1], 4) == [here]
    assert threads.thread_map(lambda i: i, [], 4) == []


def test_an_error_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        threads.thread_map(lambda i: 1 / i, [1, 0, 1], 2)
