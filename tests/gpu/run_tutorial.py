#!/usr/bin/env python3
"""Runs docs/tutorial.md from the export on, its commands and files as printed, and checks what its program prints.

    ./run_tutorial.py [--tutorial tutorial.md] [--tdc-gen ./tdc-gen] [--gpu h200] [--tune-minutes 2]

Four things differ from the printed text. The name of the GPU is that of the local one. The weights are random, because trained ones have to be
downloaded. So is the photo. Step 8 has a time budget. The program's class must be PyTorch's, and the score within 1e-4 of it.

Needs a GPU, nvcc, cmake, a C++ compiler, PyTorch, torchvision and onnxscript.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import torch
import torchvision
from imported_networks import network

NAME = "mobilenet_v3_large"
# The step before it needs Rust.
FIRST_STEP = 2
PRINTED_GPU = "rtx4090"
PHOTO = "photo.jpg"
TUNE = "tdc-gen tune "


def script(step: str) -> str:
    """A step as a shell script: its commands, and its files, whose first lines are comments of their names."""
    lines: list[str] = []
    for part in re.split(r"(^```.*?^```$)", step, flags=re.MULTILINE | re.DOTALL):
        if not part.startswith("```"):
            lines += re.findall(r"^    (\S.*)$", part, flags=re.MULTILINE)
            continue
        body = "\n".join(part.splitlines()[1:-1])
        name = re.match(r"(?:#|//) (\S+)\n", body)
        if name is None:
            sys.exit(f"a block of the tutorial without the name of its file:\n{body}")
        lines += [f"cat > {name[1]} <<'END_OF_FILE'", body, "END_OF_FILE"]
    return "\n".join(lines) + "\n"


def steps(text: str) -> list[tuple[str, str]]:
    """Titles and scripts of the tutorial's numbered steps, from the first that needs no Rust."""
    parts = re.findall(r"^## ((\d+)\. .*?)$(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    return [(title, script(body)) for title, number, body in parts if int(number) >= FIRST_STEP]


def gpu_name() -> str:
    """The local GPU as tdc-gen calls it: `h100` for an NVIDIA H100 80GB HBM3, `rtx4090` for a GeForce RTX 4090."""
    name = torch.cuda.get_device_name().lower()
    found = re.search(r"\brtx \w*\d+( ti| super| ada)?|\b[a-z]{1,2}\d+s?\b", name)
    if found is None:
        sys.exit(f"{name} is not known: give its name in docs/reference/gpus.md as --gpu")
    return found[0].replace(" ", "")


def write_inputs(folder: pathlib.Path) -> torch.nn.Module:
    """Writes the photo, and the weights to where torchvision looks for a finished download; the network with these weights."""
    model = network(NAME, "cpu")
    weights = torchvision.models.MobileNet_V3_Large_Weights.IMAGENET1K_V2
    checkpoint = folder / "torch/hub/checkpoints" / pathlib.Path(weights.url).name
    checkpoint.parent.mkdir(parents=True)
    torch.save(model.state_dict(), checkpoint)
    torch.manual_seed(1)
    photo = torch.randint(0, 256, (3, 15, 20), dtype=torch.uint8)
    photo = torch.nn.functional.interpolate(photo[None].float(), (300, 400), mode="bilinear")[0].byte()
    torchvision.io.write_jpeg(photo, str(folder / PHOTO))
    return model


def run(text: str, folder: pathlib.Path, environment: dict[str, str]) -> str:
    """Runs a script; all that it prints. Ends the program if a command fails."""
    command = ["bash", "-euo", "pipefail", "-c", text]
    result = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        sys.exit(f"{text}\nfailed:\n{result.stdout[-4000:]}")
    return result.stdout


def expected(model: torch.nn.Module, image: pathlib.Path) -> torch.Tensor:
    """The scores of an image in float64."""
    pixels = torch.frombuffer(bytearray(image.read_bytes()), dtype=torch.float32).reshape(1, 3, 224, 224)
    with torch.inference_mode():
        return model.double()(pixels.double())[0]


def check(output: str, scores: torch.Tensor) -> None:
    """Ends the program unless both programs printed the best class and its score for the image."""
    best = int(scores.argmax())
    print(f"PyTorch in float64: class {best}, score {float(scores[best]):.6g}")
    # The generated program prints the largest outputs: of a random image first, then of the photo, five of each.
    largest = re.findall(r"^ +(\d+)  (\S+)$", output, flags=re.MULTILINE)[5:6]
    printed = re.findall(r"^class (\d+), score (\S+)$", output, flags=re.MULTILINE)
    if not largest or not printed:
        sys.exit(f"no class was printed:\n{output}")
    for name, index, score in (("generated program", *largest[0]), ("C++ program", *printed[0])):
        print(f"{name}: class {index}, score {score}")
        difference = abs(float(score) - float(scores[best])) / float(scores.abs().max())
        if int(index) != best or not difference < 1e-4:
            sys.exit("its class or score is wrong")


def replaced(text: str, printed: str, by: str) -> str:
    """The text with another word in the place of a printed one, which must be there."""
    if printed not in text:
        sys.exit(f"the tutorial has no `{printed}`")
    return text.replace(printed, by)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutorial", type=pathlib.Path, default=pathlib.Path("tutorial.md"))
    parser.add_argument("--tdc-gen", type=pathlib.Path, default=pathlib.Path("tdc-gen"))
    parser.add_argument("--gpu", default=None)
    parser.add_argument("--tune-minutes", type=float, default=2)
    options = parser.parse_args()
    gpu = options.gpu or gpu_name()
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        model = write_inputs(folder)
        path = f"{options.tdc_gen.resolve().parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "TORCH_HOME": str(folder / "torch")}
        output = ""
        text = replaced(options.tutorial.read_text(), PRINTED_GPU, gpu)
        text = replaced(text, TUNE, f"{TUNE}--budget {options.tune_minutes} ")
        for title, commands in steps(text):
            start = time.perf_counter()
            output += run(commands, folder, environment)
            print(f"{title}: {time.perf_counter() - start:.0f} s", flush=True)
        check(output, expected(model, folder / "image.bin"))


if __name__ == "__main__":
    main()
