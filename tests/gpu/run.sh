#!/usr/bin/env bash
# The GPU tier. Needs a GPU, nvcc, cmake, and a python3 with torch, torchvision and safetensors; no Rust.
#   ./run.sh [STEP...]     steps: verify drivers pytorch two sanitizer bench; all of them by default
# Exits with 1 when a step failed; every failure is printed.
set -uo pipefail
cd "$(dirname "$0")"
steps=${*:-verify drivers pytorch two sanitizer bench}
failures=0
work=work
mkdir -p $work

check() {  # check NAME COMMAND...: runs a command, counts and names a failure
    local name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        echo "ok      $name"
    else
        echo "FAILED  $name: $*"
        tail -n 30 "$work/log"
        failures=$((failures + 1))
    fi
}

for step in $steps; do
    case $step in
    verify)
        # Every unit alone and the network whole, through NVRTC and the driver API.
        for dense in "" --dense; do
            for input in 1x3x224x224 3x3x224x224 1x3x160x200 3x3x160x200; do
                check "verify $dense $input" ./tdc-gen verify configs/resnet18.yaml $dense --gpu --input $input
            done
        done
        check "random shapes" ./units --ignored
        check "random networks" ./random_networks --ignored
        check "verify core shapes" ./tdc-gen verify configs/core-shapes.yaml --gpu
        ;;
    drivers)
        # The emitted C++: builds without a warning, two runs give the same bits, with a graph and without.
        for dense in "" --dense; do
            dir=$work/resnet18${dense:+_dense}
            check "generate $dense" ./tdc-gen configs/resnet18.yaml $dense --out "$dir"
            check "pack $dense" ./tdc-gen pack configs/resnet18.yaml $dense --random 1 -o "$dir/weights.bin"
            check "nvcc $dense" ./build.sh "$dir"
            check "run $dense" "$dir/app" --weights "$dir/weights.bin" --output "$dir/first.bin"
            check "run again $dense" "$dir/app" --weights "$dir/weights.bin" --output "$dir/second.bin" --no-graph
            check "same bits $dense" cmp "$dir/first.bin" "$dir/second.bin"
        done
        check "generate core shapes" ./tdc-gen configs/core-shapes.yaml --out $work/core-shapes
        check "nvcc core shapes" ./build.sh $work/core-shapes
        check "core shapes right" $work/core-shapes/app
        cat $work/log
        ;;
    pytorch)
        for dense in "" --dense; do
            for batch in 1 3; do
                check "pytorch $dense batch $batch" python3 compare_with_pytorch.py $dense --batch $batch --work $work
                grep relative $work/log
            done
        done
        ;;
    two)
        # A program outside the tree, two vendored networks by two add_subdirectory.
        for dense in "" --dense; do
            check "generate $dense" ./tdc-gen configs/resnet18.yaml $dense --out "two_networks/resnet18${dense:+_dense}"
        done
        check "cmake" cmake -S two_networks -B $work/two -DCMAKE_CUDA_ARCHITECTURES=native -DCMAKE_BUILD_TYPE=Release
        check "build" cmake --build $work/two -j
        check "two networks in one program" $work/two/two_networks
        ;;
    sanitizer)
        # A small image, so that the checkers end in minutes.
        for dense in "" --dense; do
            dir=$work/small${dense:+_dense}
            check "generate small $dense" ./tdc-gen configs/resnet18.yaml $dense --input 1x3x64x64 --out "$dir"
            check "nvcc small $dense" ./build.sh "$dir"
            for tool in memcheck initcheck racecheck; do
                check "$tool $dense" compute-sanitizer --tool $tool --error-exitcode 9 \
                    "$dir/app" --random 1 --runs 1 --no-graph
                grep -h "ERROR SUMMARY\|not supported\|RACECHECK SUMMARY" $work/log
            done
        done
        ;;
    bench)
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
        nvcc --version | tail -n 1
        for dense in "" --dense; do
            dir=$work/resnet18${dense:+_dense}
            check "time $dense" "$dir/app" --weights "$dir/weights.bin" --profile
            cat $work/log
        done
        check "time PyTorch" python3 compare_with_pytorch.py --time
        cat $work/log
        ;;
    *)
        echo "unknown step $step"
        failures=$((failures + 1))
        ;;
    esac
done
if [ $failures -gt 0 ]; then
    echo "$failures failed"
    exit 1
fi
