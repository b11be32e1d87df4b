#!/usr/bin/env bash
# Builds the folder of the GPU tier: everything that a machine with a GPU needs, without Rust.
#   tests/gpu/make.sh [DIR]     default: target/gpu-tier
#   tests/gpu/make_candle.sh    adds the example of candle, if wanted
# Copy the folder there and run:
#   ./run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-target/gpu-tier}

cargo build --release -p tdc-generator
# The tests that need a GPU, as programs.
tests=$(cargo test --release --no-run --test units --test random_networks --test low_rank_layers --test amplified_errors --test square_factors --test nhwc_activations 2>&1 |
    tee /dev/stderr | sed -n 's/.*Executable.*(\(.*\))/\1/p')
rm -rf "$out"
mkdir -p "$out"
cp target/release/tdc-gen "$out/"
cp -r configs "$out/configs"
for test in $tests; do
    program=$out/$(basename "${test%-*}")
    cp "$test" "$program"
    strip "$program"
done
# A program with kernels of `kernel!`.
cargo build --release --manifest-path tests/embedded/Cargo.toml --target-dir target/embedded
cp target/embedded/release/embedded "$out/"
strip "$out/embedded"
# The same under the address sanitizer, if the compiler supports it.
if cargo +nightly --version >/dev/null 2>&1; then
    RUSTFLAGS=-Zsanitizer=address cargo +nightly build --manifest-path tests/embedded/Cargo.toml \
        --target-dir target/embedded-asan --target x86_64-unknown-linux-gnu
    cp target/embedded-asan/x86_64-unknown-linux-gnu/debug/embedded "$out/embedded-asan"
    strip "$out/embedded-asan"
fi
cp -r tests/gpu/run.sh tests/gpu/build.sh tests/gpu/{compare_builds,compare_with_pytorch,nvcc_program,network_times,rank_choices,imported_networks,check_imports,plant_errors,run_tutorial,check_python}.py \
    tests/gpu/two_networks tests/gpu/prelude tests/gpu/tdc-layers.yaml docs/tutorial.md "$out/"
mkdir -p "$out/package/python"
cp -r python/src python/tests python/experiments python/pyproject.toml "$out/package/python/"
cp docs/results/h200/published.txt "$out/h200-published.txt"
cp -r templates/device tests/cpu_emulation/{copies,clusters,conversions,products}.cu "$out/prelude/"
echo "$out: copy it to a machine with a GPU, nvcc and PyTorch, and run ./run.sh there"
