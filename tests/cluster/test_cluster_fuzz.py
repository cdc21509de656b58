"""Damaged cluster files: a cluster or one sentence, nothing else. STEAD_FUZZ sets the number of tries."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from stead.cluster import cluster_from, cluster_to_json, cluster_to_toml, read_cluster
from stead.errors import BadCluster

TRIES = int(os.environ.get("STEAD_FUZZ", "300"))
WORDS = [
    b'"', b"'", b"[", b"]", b"{", b"}", b"=", b"\n", b"\x00", b"\xff", b"1e999", b"nan", b"-1", b"9" * 400,
    b"null", b"true", b"[[device]]\n", b"[[link]]\n", b'"*"', b'via = "cpu"\n', b"1979-05-27T07:32:00Z",
    b"\\ud800", b'"0GiB"', b"name = ", b'"""', b"#", b"\xef\xbb\xbf", b"0x", b"inf", b"[" * 2000,
]  # fmt: skip


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to four random cuts, copies, flips and insertions."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((0, 1, 1, 2, 5, 30, 300)))
        put = rng.choice(
            (
                b"",
                rng.choice(WORDS),
                data[start:stop] * 2,
                bytes(rng.randrange(256) for _ in range(rng.randint(1, 3))),
                data[rng.randrange(len(data) + 1) :][: rng.randint(0, 40)],
            )
        )
        data = data[:start] + put + data[stop:]
    return data


@pytest.mark.fuzz(TRIES)
@pytest.mark.parametrize("ending", ["toml", "json"])
def test_a_damaged_file_is_a_cluster_or_one_sentence(tmp_path: Path, ending: str) -> None:
    rng = random.Random(20260101)
    write = cluster_to_toml if ending == "toml" else cluster_to_json
    seeds = [
        write(cluster_from(text)[0]).encode() for text in ("3090,3060,cpu", "2x A100-80GB + M3 Ultra 96GB")
    ]
    path = tmp_path / f"f.{ending}"
    for _ in range(TRIES):
        data = damaged(rng.choice(seeds), rng)
        path.write_bytes(data)
        begin = time.process_time()
        try:
            assert read_cluster(path).fingerprint
        except BadCluster as error:
            told = str(error)
            assert told.startswith(str(path)), (told, data)
            assert told.isprintable(), (told, data)
            assert len(told) < 1500, (told, data)
        assert time.process_time() - begin < 10, data
