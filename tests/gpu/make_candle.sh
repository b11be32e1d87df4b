#!/usr/bin/env bash
# Adds the example of candle to the folder of the GPU tier. Takes minutes, as nvcc compiles candle's kernels.
#   tests/gpu/make_candle.sh [DIR]     default: target/gpu-tier, as make.sh has made it
# Needs nvcc, on the path or from `tdc-gen toolkit install nvcc`, and no other part of CUDA: the program is linked against stubs of the rest.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/gpu-tier}
example=examples/candle/Cargo.toml

fail() {
    echo "$1" >&2
    exit 1
}

NVCC=$("$out/tdc-gen" toolkit --json | python3 -c '
import json, sys
nvcc = json.load(sys.stdin)["nvcc"]
print(nvcc["program"] if nvcc else "")')
[ -n "$NVCC" ] || fail "there is no nvcc; run: $out/tdc-gen toolkit install nvcc"
CUDA_HOME=$(dirname "$(dirname "$NVCC")")
export NVCC CUDA_HOME CUDA_COMPUTE_CAP="${CUDA_COMPUTE_CAP:-90}"
cudart=$(find -L "$CUDA_HOME" -name 'libcudart.so.1?' | head -n 1)
[ -n "$cudart" ] || fail "$CUDA_HOME has no libcudart.so"
cudarc=$(cargo metadata --locked --format-version 1 --manifest-path $example | python3 -c '
import json, os, sys
packages = json.load(sys.stdin)["packages"]
[folder] = (os.path.dirname(package["manifest_path"]) for package in packages if package["name"] == "cudarc")
print(folder)')
stubs=$PWD/target/candle/stubs
tests/gpu/cuda_link_stubs.py "$cudarc" "$stubs"
ln -sf "$cudart" "$stubs/libcudart.so"
cargo rustc --release --locked --manifest-path $example --target-dir target/candle -- -L "native=$stubs"
cp target/candle/release/candle "$out/"
strip "$out/candle"
