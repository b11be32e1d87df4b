"""Compiles the program of a generated folder by nvcc."""

import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import tempfile
import threading

# Compilers that run at a time for one program.
COMPILERS = 4


def compiled(folder: pathlib.Path, arch: str, objects: pathlib.Path | None = None) -> pathlib.Path:
    """The program of a generated folder.

    With `objects`, the object files of units are kept in that folder: networks that share a unit share its object. Raises
    subprocess.CalledProcessError if a compiler fails, with its output in `stderr`.
    """
    with tempfile.TemporaryDirectory() as temporary:
        own = pathlib.Path(temporary)
        units = sorted(folder.glob("src/**/units/*.cu"))
        others = [folder / "main.cu", *sorted(set(folder.glob("src/**/*.cu")) - set(units))]
        with concurrent.futures.ThreadPoolExecutor(COMPILERS) as pool:
            jobs = [pool.submit(unit_object, unit, folder, arch, objects or own) for unit in units]
            jobs += [pool.submit(compile_object, other, folder, arch, own / f"{other.stem}.o") for other in others]
            files = [job.result() for job in jobs]
        program = folder / "program"
        nvcc(f"-arch={arch}", *files, "-o", program)
    return program


def unit_object(source: pathlib.Path, folder: pathlib.Path, arch: str, objects: pathlib.Path) -> pathlib.Path:
    """The object of a unit, whose name is the hash of all that it is made from."""
    texts = [file.read_bytes() for file in (source, source.with_suffix(".h"), *sorted(source.parent.glob("*.cuh")))]
    key = hashlib.sha256(arch.encode() + b"".join(texts)).hexdigest()
    found = objects / f"{key}.o"
    if not found.exists():
        objects.mkdir(parents=True, exist_ok=True)
        # Another process or thread may be compiling the same unit.
        own = objects / f"{key}-{os.getpid()}-{threading.get_ident()}.o"
        compile_object(source, folder, arch, own).replace(found)
    return found


def compile_object(source: pathlib.Path, folder: pathlib.Path, arch: str, path: pathlib.Path) -> pathlib.Path:
    """Compiles a source file to an object file."""
    nvcc("-std=c++17", "-O3", f"-arch={arch}", "-I", folder / "include", "-c", source, "-o", path)
    return path


def nvcc(*arguments: str | pathlib.Path) -> None:
    """Runs the compiler."""
    subprocess.run(["nvcc", *map(str, arguments)], check=True, capture_output=True, text=True)
