#!/usr/bin/env python3
"""Writes stubs of the libraries of CUDA that are no part of nvcc's package, against which a program is linked on a machine without them.

    ./cuda_link_stubs.py CUDARC FOLDER

CUDARC is the source of the crate cudarc, whose bindings name the functions. FOLDER gets one shared library for each of `LIBRARIES`, with the
name by which CUDA 13's is found when the program runs. Needs a C compiler.
"""

import pathlib
import re
import subprocess
import sys

# Module of cudarc, name of the library for the linker, and its name at run time.
LIBRARIES = (
    ("driver", "cuda", "libcuda.so.1"),
    ("nvrtc", "nvrtc", "libnvrtc.so.13"),
    ("cublas", "cublas", "libcublas.so.13"),
    ("cublaslt", "cublasLt", "libcublasLt.so.13"),
    ("curand", "curand", "libcurand.so.10"),
)


def main() -> None:
    cudarc, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for module, name, runtime_name in LIBRARIES:
        bindings = (cudarc / "src" / module / "sys" / "mod.rs").read_text()
        functions = sorted(set(re.findall(r"\bpub unsafe fn ((?:cu[A-Z]|cublas|cuda|curand|nvrtc)\w+)\(", bindings)))
        if not functions:
            sys.exit(f"{cudarc} has no bindings of {name}")
        source = "".join(f"void {function}(void) {{}}\n" for function in functions)
        command = ["cc", "-shared", "-x", "c", "-", f"-Wl,-soname,{runtime_name}", "-o", str(folder / f"lib{name}.so")]
        subprocess.run(command, input=source, text=True, check=True)


if __name__ == "__main__":
    main()
