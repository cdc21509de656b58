"""llama.cpp itself, asked where it puts layers and tensors: the library and local RPC servers as devices.

A child process loads a tiny model through ctypes, so that a crash of the library is an answer and not ours. Devices of
a plan are `ggml-rpc-server` processes on this machine; what the library logs while it loads is its layer table.

    cmake -B build -DGGML_RPC=ON ... && ninja -C build ggml-rpc-server llama
    LLAMA_CPP_LIB_PATH=build/bin stead verify plan.json --to llama
"""

from __future__ import annotations

import ctypes
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from stead.errors import RunFailed
from stead.export.tiny_gguf import tiny_gguf
from stead.files import write_bytes
from stead.printing.wording import shown_path

SERVER = "ggml-rpc-server"
START_SECONDS, LOAD_SECONDS = 60.0, 120.0
PROMPT = (1, 260, 262, 264, 261)  # begin of text and some letters
_LIBRARIES = ("ggml-base", "ggml-cpu", "ggml-rpc", "ggml", "llama")
_LAYER = re.compile(r"load_tensors: layer\s+(\d+) assigned to device (\S+?),")
_MOVED = re.compile(r"tensor (\S+) \(.*\) buffer type overridden to (\S+)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the library did with a tiny model."""

    table: tuple[str, ...]  # [layer and output]; CPU, or RPC and the number of the server
    moved: Mapping[str, str]  # tensors that overrides took, and their buffer types
    logits: tuple[float, ...]


class LlamaLibrary:
    """A library of llama.cpp with so many local RPC servers; nothing of it is left when it is closed."""

    def __init__(self, folder: Path, servers: int) -> None:
        self._closing = ExitStack()
        try:
            self.scratch = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="stead-llama-")))
            self.endpoints = [self._serve(folder) for _ in range(servers)]
            self._child = subprocess.Popen(
                [sys.executable, "-m", "stead.export.llama_library", str(folder), *self.endpoints],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            self._closing.callback(_end, self._child)
        except BaseException:
            self._closing.close()
            raise

    def load(
        self, layers: int, *, ngl: int, split: Sequence[float], overrides: Sequence[tuple[str, int]], experts: bool
    ) -> Seen:
        """Load a tiny model on the first servers, as many as `split` has parts; overrides name servers, -1 the CPU."""
        path = self.scratch / f"{layers}-{experts}.gguf"
        if not path.exists():
            write_bytes(path, tiny_gguf(layers, experts=experts))
        asked = {"model": str(path), "ngl": ngl, "split": list(split), "overrides": [list(one) for one in overrides]}
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        late = threading.Timer(LOAD_SECONDS, self._child.kill)
        late.start()
        try:
            self._child.stdin.write(json.dumps(asked) + "\n")
            self._child.stdin.flush()
            answer = self._child.stdout.readline()
        except OSError:
            answer = ""
        finally:
            late.cancel()
        if not answer:
            code = self._child.wait(LOAD_SECONDS)
            raise RunFailed(f"llama.cpp ended with code {code} while it loaded a model; is it a release that is known?")
        found = json.loads(answer)
        if "error" in found:
            raise RunFailed(f"llama.cpp: {found['error']}")
        return Seen(tuple(found["table"]), found["moved"], tuple(found["logits"]))

    def _serve(self, folder: Path) -> str:
        """Start a server; where it listens."""
        program = folder / SERVER
        if not program.is_file():
            raise RunFailed(f"{shown_path(folder)} has no {SERVER}: build llama.cpp with GGML_RPC=ON")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen(
            [program, "-H", "127.0.0.1", "-p", str(port), "-t", "1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._closing.callback(_end, process)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return f"127.0.0.1:{port}"
            time.sleep(0.05)
        raise RunFailed(f"{SERVER} did not begin to listen on port {port}")

    def close(self) -> None:
        """End the child and all servers."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


# In the child


class _ModelOptions(ctypes.Structure):
    """llama_model_params of libllama 0.5."""

    _fields_ = (
        ("devices", ctypes.c_void_p),
        ("overrides", ctypes.c_void_p),
        ("n_gpu_layers", ctypes.c_int32),
        ("split_mode", ctypes.c_int32),
        ("load_mode", ctypes.c_int32),
        ("lazy_mode", ctypes.c_int32),
        ("main_gpu", ctypes.c_int32),
        ("tensor_split", ctypes.POINTER(ctypes.c_float)),
        ("progress_callback", ctypes.c_void_p),
        ("progress_callback_data", ctypes.c_void_p),
        ("kv_overrides", ctypes.c_void_p),
        ("vocab_only", ctypes.c_bool),
        ("check_tensors", ctypes.c_bool),
        ("use_extra_bufts", ctypes.c_bool),
        ("no_host", ctypes.c_bool),
        ("no_alloc", ctypes.c_bool),
        ("load_mtp", ctypes.c_bool),
    )


class _ContextOptions(ctypes.Structure):
    """The head of llama_context_params; the rest is passed on as it comes."""

    _fields_ = (("n_ctx", ctypes.c_uint32), ("rest", ctypes.c_char * 1020))


class _Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (("n_tokens", ctypes.c_int32), ("arrays", ctypes.c_void_p * 6))


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer", ctypes.c_void_p))


class _Library:
    """The functions that are needed, and the devices."""

    def __init__(self, folder: Path, endpoints: Sequence[str]) -> None:
        loaded = [ctypes.CDLL(str(folder / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL) for name in _LIBRARIES]
        base, _, rpc, _, self.llama = loaded
        for library, name, result, *arguments in (
            (self.llama, "llama_model_default_params", _ModelOptions),
            (self.llama, "llama_context_default_params", _ContextOptions),
            (self.llama, "llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, _ModelOptions),
            (self.llama, "llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, _ContextOptions),
            (self.llama, "llama_set_n_threads", None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32),
            (self.llama, "llama_batch_get_one", _Batch, ctypes.c_void_p, ctypes.c_int32),
            (self.llama, "llama_decode", ctypes.c_int32, ctypes.c_void_p, _Batch),
            (self.llama, "llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int32),
            (self.llama, "llama_model_get_vocab", ctypes.c_void_p, ctypes.c_void_p),
            (self.llama, "llama_vocab_n_tokens", ctypes.c_int32, ctypes.c_void_p),
            (self.llama, "llama_free", None, ctypes.c_void_p),
            (self.llama, "llama_model_free", None, ctypes.c_void_p),
            (rpc, "ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p),
            (base, "ggml_backend_reg_dev_get", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t),
            (base, "ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p),
            (base, "ggml_backend_cpu_buffer_type", ctypes.c_void_p),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        self.lines: list[str] = []
        self._keep = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
            lambda level, text, data: self.lines.append(text.decode(errors="replace"))
        )
        self.llama.llama_log_set(self._keep, None)
        self.llama.llama_backend_init()
        registries = [rpc.ggml_backend_rpc_add_server(one.encode()) for one in endpoints]
        self.devices = [base.ggml_backend_reg_dev_get(one, 0) for one in registries]
        self.buffers = [base.ggml_backend_dev_buffer_type(one) for one in self.devices]
        self.buffers.append(base.ggml_backend_cpu_buffer_type())  # at -1

    def load(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Load a model, run a few tokens, and say what was seen."""
        options = self.llama.llama_model_default_params()
        if (options.split_mode, options.main_gpu, options.use_extra_bufts, options.no_alloc) != (1, 0, True, False):
            return {"error": "it is another release than the one whose parameters are known (libllama 0.5)"}
        count = len(asked["split"])
        devices = (ctypes.c_void_p * (count + 1))(*self.devices[:count], None)
        split = (ctypes.c_float * 128)(*asked["split"])
        moved = [_Override(pattern.encode(), self.buffers[server]) for pattern, server in asked["overrides"]]
        overrides = (_Override * (len(moved) + 1))(*moved, _Override(None, None))
        options.devices, options.n_gpu_layers = ctypes.cast(devices, ctypes.c_void_p), asked["ngl"]
        options.tensor_split = split
        options.overrides = ctypes.cast(overrides, ctypes.c_void_p) if moved else None
        self.lines.clear()
        model = self.llama.llama_model_load_from_file(asked["model"].encode(), options)
        if not model:
            return {"error": f"it did not load the model: {''.join(self.lines[-3:]).strip()}"}
        table = dict(_LAYER.findall("".join(self.lines)))
        taken = dict(_MOVED.findall("".join(self.lines)))
        logits = self._logits(model)
        self.llama.llama_model_free(model)
        return {"table": [table[key] for key in sorted(table, key=int)], "moved": taken, "logits": logits}

    def _logits(self, model: int) -> list[float]:
        options = self.llama.llama_context_default_params()
        options.n_ctx = 64
        context = self.llama.llama_init_from_model(model, options)
        self.llama.llama_set_n_threads(context, 1, 1)
        tokens = (ctypes.c_int32 * len(PROMPT))(*PROMPT)
        code = self.llama.llama_decode(context, self.llama.llama_batch_get_one(tokens, len(PROMPT)))
        found = self.llama.llama_get_logits_ith(context, -1)
        size = self.llama.llama_vocab_n_tokens(self.llama.llama_model_get_vocab(model))
        values = [] if code else [float(found[n]) for n in range(size)]
        self.llama.llama_free(context)
        return values


def _serve_questions(folder: str, endpoints: Sequence[str]) -> None:
    """Answer every line of standard input."""
    library = _Library(Path(folder), endpoints)
    for line in sys.stdin:
        print(json.dumps(library.load(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve_questions(sys.argv[1], sys.argv[2:])

