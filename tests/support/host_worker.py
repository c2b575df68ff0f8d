"""Runs in a process of its own, with the fake driver first in LD_LIBRARY_PATH: calls a binding and reads the driver's record.

Tensors are DLTensor structures made by hand, so that they can claim any device, address and strides. A request is a line
of JSON on standard input, `[command, arguments...]`; the answer is a line of JSON. Neither torch nor tvm_ffi is imported.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
from typing import Any

KINDS = {"none": 0, "int": 1, "bool": 2, "float": 3, "dltensor": 7, "string": 8, "tensor": 70}
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class TensorObject(ctypes.Structure):
    """tvm-ffi's own tensor: an object header of 24 bytes, then the DLTensor."""

    _fields_ = (("header", ctypes.c_char * 24), ("dl", DLTensor))


class Value(ctypes.Union):
    _fields_ = (("int64", ctypes.c_int64), ("float64", ctypes.c_double), ("pointer", ctypes.c_void_p))


class FFIAny(ctypes.Structure):
    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", Value))


class Bytes(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))

    def text(self) -> str:
        return ctypes.string_at(self.data, self.size).decode()


def tensor(spec: dict[str, Any], keep: list[Any]) -> DLTensor:
    """A DLTensor from `{"shape", "strides", "dtype": [code, bits], "device": [type, id], "data", "offset"}`."""
    shape = (ctypes.c_int64 * max(1, len(spec["shape"])))(*spec["shape"])
    strides = (ctypes.c_int64 * max(1, len(spec["shape"])))(*spec["strides"]) if spec["strides"] is not None else None
    keep += [shape, strides]
    code, bits = spec["dtype"]
    return DLTensor(
        spec["data"] or None,
        Device(*spec["device"]),
        len(spec["shape"]),
        DType(CODES[code], bits, spec.get("lanes", 1)),
        ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)) if strides else None,
        spec.get("offset", 0),
    )


def pack(args: list[Any], keep: list[Any]) -> Any:
    """An array of TVMFFIAny from `[kind, value]` pairs."""
    array = (FFIAny * max(1, len(args)))()
    for slot, (kind, value) in zip(array, args, strict=False):
        slot.type_index = KINDS[kind]
        if kind == "float":
            slot.value.float64 = float(value)
        elif kind == "dltensor":
            dl = tensor(value, keep)
            keep.append(dl)
            slot.value.pointer = ctypes.addressof(dl)
        elif kind == "tensor":
            whole = TensorObject(b"", tensor(value, keep))
            keep.append(whole)
            slot.value.pointer = ctypes.addressof(whole)
        elif kind == "string":
            text = ctypes.create_string_buffer(value.encode())
            keep.append(text)
            slot.value.pointer = ctypes.addressof(text)
        else:
            slot.value.int64 = int(value or 0)
    return array


class Worker:
    """The commands. `tvm` is libtvm_ffi, `driver` the fake driver, `library` the binding under test."""

    def __init__(self, tvm: str, library: str, with_driver: bool) -> None:
        self.tvm = ctypes.CDLL(tvm, ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(library)
        self.driver: Any = ctypes.CDLL("libcuda.so.1") if with_driver else None
        if with_driver:
            self.driver.fake_record.restype = ctypes.c_char_p
            self.driver.fake_time.restype = ctypes.c_double

    def call(self, function: str, args: list[Any]) -> list[Any]:
        """`[return code, error kind, error message, type index of the result]`."""
        keep: list[Any] = []
        array, result = pack(args, keep), FFIAny(-7)
        code = getattr(self.library, f"__tvm_ffi_{function}")(None, array, len(args), ctypes.byref(result))
        if code == 0:
            return [0, "", "", result.type_index]
        error = ctypes.c_void_p()
        self.tvm.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
        assert error.value is not None
        kind, message = (Bytes.from_address(error.value + 24 + 16 * i).text() for i in range(2))
        self.tvm.TVMFFIObjectDecRef(error)
        return [code, kind, message, result.type_index]

    def threads(self, function: str, args: list[Any], count: int) -> list[Any]:
        """`call` from `count` new threads at once; their answers and the context each was left with."""
        answers: list[Any] = []
        barrier = threading.Barrier(count)

        def body() -> None:
            barrier.wait()
            answer = self.call(function, args)
            answers.append([*answer, self.driver.fake_get_context()])

        workers = [threading.Thread(target=body) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return answers

    def record(self) -> list[str]:
        return self.driver.fake_record().decode().splitlines()  # type: ignore[no-any-return]

    def reset(self) -> None:
        self.driver.fake_reset()

    def fail(self, function: str, code: int, times: int) -> None:
        self.driver.fake_fail(function.encode(), code, times)

    def capability(self, major: int, minor: int) -> None:
        self.driver.fake_capability(major, minor)

    def arguments(self, sizes: list[int]) -> None:
        self.driver.fake_arguments((ctypes.c_int * len(sizes))(*sizes), len(sizes))

    def set_context(self, device: int) -> None:
        self.driver.fake_set_context(device)

    def get_context(self) -> int:
        return int(self.driver.fake_get_context())

    def references(self) -> int:
        """How many times the driver is held open; lets go of every hold, so this is a test's last command."""
        system = ctypes.CDLL(None)
        system.dlopen.restype, system.dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
        system.dlclose.argtypes = (ctypes.c_void_p,)
        count = 0
        while handle := system.dlopen(b"libcuda.so.1", os.RTLD_NOW | os.RTLD_NOLOAD):
            system.dlclose(handle)
            system.dlclose(handle)
            count += 1
        return count

    def set_stream(self, device: int, stream: int) -> None:
        self.tvm.TVMFFIEnvSetStream(2, device, ctypes.c_void_p(stream), None)

    def time(self, args: list[Any], calls: int) -> float:
        keep: list[Any] = []
        array = pack(args, keep)
        function = ctypes.cast(self.library["__tvm_ffi_run"], ctypes.c_void_p)
        return float(self.driver.fake_time(function, array, len(args), calls))


def main() -> None:
    worker = Worker(sys.argv[1], sys.argv[2], sys.argv[3] == "driver")
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(worker, command)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
