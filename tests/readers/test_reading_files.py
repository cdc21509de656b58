"""Files that cannot be read, and files that must be recognised."""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from stead import files
from stead.errors import BadInput
from stead.readers import JsonGraph, MsrFiddle, base, formats, read, reader_of


def test_a_missing_file_is_named_and_a_similar_one_offered(save, refusal):
    save({}, "resnet.json")
    assert refusal(read, "resnt.json") == "resnt.json: no such file; did you mean 'resnet.json'?"


def test_a_missing_folder_is_a_missing_file(here, refusal):
    assert refusal(read, "no/where.json") == "no/where.json: no such file; check the path"


def test_a_directory_is_refused(here, refusal):
    Path("models").mkdir()
    assert refusal(read, "models") == "models: is a directory; name a file in it"


@pytest.mark.parametrize("content", ["", " \n\t "])
def test_an_empty_file_is_refused(save, refusal, content):
    for reading in (read, JsonGraph().read, MsrFiddle().read):
        assert refusal(reading, save(content)) == "demo.json: the file is empty; write the graph again"


def test_permission_denied_is_one_line(save, refusal, monkeypatch):
    def denied(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    path = save({})
    monkeypatch.setattr(os, "open", denied)
    assert refusal(read, path) == "demo.json: permission denied; check the rights of the file"


def test_other_trouble_of_the_system_is_told_in_its_words(here, refusal):
    assert refusal(read, "x" * 5000 + ".json").endswith("File name too long; check the path")
    Path("loop").symlink_to("loop")
    assert refusal(read, "loop") == "loop: Too many levels of symbolic links; check the path"
    assert refusal(read, "nul\0.json") == "nul\\x00.json: not a path: embedded null byte"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_block(here, refusal):
    os.mkfifo("pipe.json")
    assert refusal(read, "pipe.json") == "pipe.json: not a regular file; save its contents to a file first"


def test_binary_garbage_lists_the_known_formats(here, refusal):
    Path("noise.bin").write_bytes(bytes(range(256)) * 20)
    told = refusal(read, "noise.bin")
    assert told.startswith("noise.bin: none of the known formats: stead-json (.json .json.gz), ")
    assert all(name in told for name in formats())


def test_binary_garbage_read_as_a_named_format_tells_the_byte(here, refusal):
    Path("noise.json").write_bytes(b'{"a": "\xff"}')
    assert refusal(read, "noise.json", format="stead-json") == (
        "noise.json: not text (byte 0xff at offset 7 is not UTF-8); is it another kind of file?"
    )


def test_an_unknown_format_lists_the_known_ones(save, refusal):
    told = refusal(read, save({}), format="stead-jsn")
    assert told.startswith("no format 'stead-jsn'; did you mean 'stead-json'")
    assert all(name in told for name in formats())


def test_json_of_another_kind_is_no_known_format(save, refusal):
    assert "none of the known formats" in refusal(read, save({"format": "stead.plan", "version": 1}))


def test_a_file_beyond_the_limit_is_refused(save, refusal, graph_data, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 300)
    path = save(graph_data)
    assert refusal(read, path).startswith("demo.json: larger than ")


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_at_the_limit(here, refusal, monkeypatch):
    monkeypatch.setattr(files, "MAX_FILE_BYTES", 2**20)
    Path("bomb.json.gz").write_bytes(gzip.compress(b'{"format": "stead.graph"' + b" " * 2**26, mtime=0))
    assert refusal(read, "bomb.json.gz") == "bomb.json.gz: larger than 1 MiB; coarsen the graph first"


def test_a_file_made_to_unpack_to_gigabytes_is_given_up_early(here, refusal, monkeypatch):
    monkeypatch.setattr(files, "_FREE_BYTES", 2**22)
    Path("bomb.json.gz").write_bytes(gzip.compress(b'{"format": "stead.graph"' + b" " * 2**24, mtime=0))
    assert refusal(read, "bomb.json.gz") == "bomb.json.gz: unpacks to over 300 times its size: no graph"


def test_damaged_gzip_is_one_line(here, refusal, graph_data):
    packed = gzip.compress(json.dumps(graph_data).encode())
    for damaged in (
        packed[:-9],
        packed[:40],
        packed[:60] + b"\0\0\0\0" + packed[64:],
        packed[:-8] + b"\0" * 8,
    ):
        Path("demo.json.gz").write_bytes(damaged)
        assert refusal(read, "demo.json.gz").startswith("demo.json.gz: ")


def test_a_compressed_graph_is_read_like_a_plain_one(here, save, graph_data):
    plain = read(save(graph_data)).graph
    Path("packed.json.gz").write_bytes(gzip.compress(json.dumps(graph_data).encode()))
    assert read("packed.json.gz").graph == plain


def test_a_byte_order_mark_is_allowed(here, graph_data):
    Path("demo.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(graph_data).encode())
    assert len(read("demo.json").graph) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "stead.graph",\n "version": NaN}', "line 2, column 13: NaN is not a number"),
        ('{"format": "stead.graph",\n "a": [1, -Infinity]}', "line 2, column 11: -Infinity is not a number"),
        ('{"format": "stead.graph", "b": {"x": 1,\n"x": 2}}', 'line 2, column 1: the key "x" is given twice'),
        ('{"format": "stead.graph", "NaN": "a\\"b", "NaN": 1}', 'column 42: the key "NaN" is given twice'),
        ('{"format": "stead.graph", "format": 1}', 'line 1, column 27: the key "format" is given twice'),
        ('{"format": "stead.graph",', "line 1, column 26: not JSON: Expecting property name"),
        ('{"format": "stead.graph"} x', "line 1, column 27: not JSON: Extra data"),
        ('{"format": "stead.graph", "n": 1' + "0" * 4000 + "}", "line 1, column 32: a number of 4001 digits"),
        ('{"format": "stead.graph", "n": -1' + "0" * 10**6 + "}", "a number of 1000002 digits"),
        ('{"format": "stead.graph", "n": ' + "[" * 100_000, "nested too deeply"),
        ('{"format": "stead.graph", "n": ' + '{"a":' * 100_000, "nested too deeply"),
        ('{"format": "stead.graph", "n": "\\ud83d"}', "half a character (a lone surrogate)"),
    ],
)
def test_what_is_no_sound_json_is_refused_with_its_place(save, refusal, text, message):
    started = time.process_time()
    told = refusal(read, save(text))
    assert told.startswith("demo.json: ")
    assert message in told
    assert time.process_time() - started < 2


def test_long_numbers_are_refused_even_where_python_allows_them(save, refusal):
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert "digits" in refusal(read, save('{"format": "stead.graph", "n": 1' + "0" * 10**7 + "}"))
    finally:
        sys.set_int_max_str_digits(before)


def test_a_pair_of_surrogates_is_one_character(save, graph_data):
    graph_data["operators"][0]["module"] = "\U0001f600"
    path = save(graph_data)  # json.dumps writes it as two escapes
    assert "\\ud83d" in Path(path).read_text()
    assert read(path).graph.modules[0] == "\U0001f600"


def test_a_line_break_in_a_path_stays_one_line(here, refusal):
    assert refusal(read, "a\nb.json").startswith("a\\nb.json: no such file")


def test_the_keys_that_tell_a_format_may_come_last(here, save, input_data):
    long = {"nodes": input_data["nodes"], "edges": input_data["edges"], "comment": "x" * 2 * base.HEAD_BYTES}
    path = save(long | {"maxCPUs": 1, "maxFPGAs": 2, "maxSizePerFPGA": 100})
    assert len(read(path).graph) == 3


def test_contents_count_for_more_than_the_suffix(save, graph_data, input_data):
    assert read(save(graph_data, "graph.txt")).cluster is None
    assert read(save(input_data, "input.dat")).cluster is not None


def test_every_built_in_reader_is_listed_under_its_own_name():
    assert {"stead-json", "msr-fiddle"} <= set(formats())
    assert all(reader_of(name).name == name for name in base.READERS)


def test_the_table_of_formats_says_what_the_readers_say():
    assert {name: type(reader).__doc__.strip().partition("\n")[0] for name, reader in formats().items()} == {
        name: one.does for name, one in base.READERS.items()
    }


def test_a_reader_of_another_package_is_found(here, monkeypatch):
    class Fake:
        name = "fake"
        suffixes = (".fake",)

        def sniff(self, head: bytes) -> bool:
            return False

        def read(self, path):
            return f"model in {path}"

    class Point:
        def load(self):
            return Fake

    monkeypatch.setattr(
        metadata, "entry_points", lambda group: [Point()] if group == "stead.readers" else []
    )
    Path("model.fake").write_text("anything")
    assert read("model.fake") == "model in model.fake"
    assert read("model.fake", format="fake") == "model in model.fake"
    with pytest.raises(BadInput, match=r"fake \(\.fake\)"):
        reader_of("other")


def test_reading_leaves_the_garbage_collector_as_it_was(save, graph_data):
    import gc

    read(save(graph_data))
    assert gc.isenabled()
    gc.disable()
    try:
        read(save(graph_data))
        assert not gc.isenabled()
    finally:
        gc.enable()
