#!/usr/bin/env bash
# The GPU tier. Needs a GPU, nvcc, cmake, and a python3 with torch, torchvision, onnxscript and safetensors; no Rust.
#   ./run.sh [STEP...]     steps: prelude verify embedded candle tiles variants drivers pytorch imports tutorial python training two sanitizer tune bench networks; all of them by default
# Exits with 1 when a step failed; every failure is printed.
set -uo pipefail
cd "$(dirname "$0")"
steps=${*:-prelude verify embedded candle tiles variants drivers pytorch imports tutorial python training two sanitizer tune bench networks}
failures=0
work=work
networks="resnet18 resnet50 vgg16 densenet121 densenet201"
prepared=
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

prepare() {  # every network and the core shapes generated, packed and compiled, once for all steps
    if [ -n "$prepared" ]; then return; fi
    prepared=yes
    local network dense dir folders=($work/core-shapes)
    for network in $networks; do
        for dense in "" --dense; do
            dir=$work/$network${dense:+_dense}
            check "generate $network $dense" ./tdc-gen configs/$network.yaml $dense --out "$dir"
            check "pack $network $dense" ./tdc-gen pack configs/$network.yaml $dense --random 1 -o "$dir/weights.bin"
            folders+=("$dir")
        done
    done
    check "generate core shapes" ./tdc-gen configs/core-shapes.yaml --out $work/core-shapes
    local start=$SECONDS
    check "nvcc" ./build.sh "${folders[@]}"
    echo "        ${#folders[@]} folders compiled in $((SECONDS - start)) s"
}

summary() {  # summary NAME GENERATION_S FOLDER_BYTES: one line of the benchmark, with what the last profile says
    python3 - "$@" $work/profile_$1.txt <<'END'
import json, re, sys
name, seconds, folder, profile = sys.argv[1:]
plan = json.load(open(f"work/{name}/plan.json"))["variants"][0]
text = open(profile).read()
print(f"{name}: {len(plan['layers'])} layers, {len({layer['unit'] for layer in plan['layers']})} units, "
      f"generation {seconds} s, folder {int(folder) / 1e6:.2f} MB, "
      f"arena {plan['arena_bytes']} bytes, weights {plan['weights']['payload_bytes']} bytes, "
      f"end to end {re.search(r'([0-9.]+) us per run', text)[1]} us, "
      f"sum of layers {re.search(r'([0-9.]+)  sum', text)[1]} us, estimate {plan['predicted_us']:.1f} us")
END
}

sanitize() {  # sanitize NAME COMMAND...: the command under three checkers
    local name=$1
    shift
    for tool in memcheck initcheck racecheck; do
        check "$tool $name" compute-sanitizer --tool $tool --error-exitcode 9 "$@"
        grep -h "ERROR SUMMARY\|not supported\|RACECHECK SUMMARY" $work/log
    done
}

sanitize_tiles() {  # every tile of three small problems of both tiled schemes under all checkers at once, which leave the GPU idle mostly
    local scheme tool name
    local -A names
    for scheme in implicit_gemm direct_tiled; do
        for tool in memcheck initcheck racecheck; do
            timeout "${TDC_SANITIZER_SECONDS:-900}" compute-sanitizer --tool $tool --error-exitcode 9 \
                ./units --ignored --exact every_tile_of_${scheme}_is_right_on_a_gpu >$work/${tool}_$scheme.txt 2>&1 &
            names[$!]=${tool}_$scheme
        done
    done
    for process in "${!names[@]}"; do
        name=${names[$process]}
        check "every tile, $name" wait "$process"
        grep -h "ERROR SUMMARY\|not supported\|RACECHECK SUMMARY" $work/$name.txt || tail -n 5 $work/$name.txt
    done
}

for step in $steps; do
    echo "== $step (${SECONDS} s)"
    case $step in
    verify)
        # Every unit alone and the network whole, through NVRTC and the driver API.
        for dense in "" --dense; do
            for network in $networks; do
                check "verify $network $dense" ./tdc-gen verify configs/$network.yaml $dense --local-gpu
            done
            for input in 3x3x224x224 1x3x160x200 3x3x160x200; do
                check "verify resnet18 $dense $input" ./tdc-gen verify configs/resnet18.yaml $dense --local-gpu --input $input
            done
        done
        check "verify cp-layers" ./tdc-gen verify configs/cp-layers.yaml --local-gpu
        for precision in tf32 fp16 bf16; do
            for config in resnet18 densenet121; do
                check "verify $config $precision" ./tdc-gen verify configs/$config.yaml --dense --precision $precision --local-gpu
            done
        done
        check "random shapes" ./units --ignored on_a_gpu --skip every_tile
        check "random networks" ./random_networks --ignored on_a_gpu
        check "low-rank layers" ./low_rank_layers --ignored on_a_gpu
        check "amplified errors" ./amplified_errors --ignored on_a_gpu
        check "square factors" ./square_factors --ignored on_a_gpu
        check "NHWC activations" ./nhwc_activations --ignored on_a_gpu
        for precision in fp32 tf32 fp16 bf16; do
            check "100 bit-identical runs $precision" \
                ./tdc-gen verify configs/core-shapes.yaml --precision $precision --local-gpu --runs 100
        done
        ;;
    embedded)
        # Each kind of embedded kernel, all error cases, and the host time of a launch.
        check "embedded kernels" ./embedded check
        if [ -e embedded-asan ]; then
            # The driver maps memory into a gap that the sanitizer reserves, and does not free all of its
            # memory.
            check "embedded kernels, addresses" env ASAN_OPTIONS=protect_shadow_gap=0:detect_leaks=0 ./embedded-asan check
        fi
        ./embedded latency || failures=$((failures + 1))
        ;;
    candle)
        # A kernel as an op of candle, compared with candle's own convolution.
        if [ -e candle ]; then
            check "candle" ./candle
            cat $work/log
        else
            echo "skipped candle: make_candle.sh has not built it"
        fi
        ;;
    tiles)
        check "every tile of implicit_gemm" ./units --ignored --exact every_tile_of_implicit_gemm_is_right_on_a_gpu
        check "every tile of direct_tiled" ./units --ignored --exact every_tile_of_direct_tiled_is_right_on_a_gpu
        sanitize_tiles
        ;;
    prelude)
        # For this GPU, and for older ones, whose PTX the driver compiles for this one: the fallbacks.
        for arch in native compute_80 compute_75; do
            check "nvcc prelude $arch" nvcc -std=c++17 -O3 -arch=$arch -Werror all-warnings -Iprelude prelude/main.cu -o $work/prelude_$arch
            check "prelude $arch" $work/prelude_$arch
            cat $work/log
        done
        ;;
    variants)
        # One folder for two GPUs: this GPU's variant is selected automatically, the other one on request.
        dir=$work/variants
        gpus="rtx4090,h200"
        check "generate" ./tdc-gen configs/resnet18.yaml --gpu $gpus --out $dir
        check "pack" ./tdc-gen pack configs/resnet18.yaml --gpu $gpus --random 1 -o $dir/weights.bin
        check "nvcc" ./build.sh $dir
        check "run the variant of this GPU" $dir/app --weights $dir/weights.bin --output $dir/this.bin
        grep "variant\|us per run" $work/log | tee $dir/this.txt
        if nvidia-smi --query-gpu=name --format=csv,noheader | grep -qw H200; then
            check "variant h200 was chosen" grep -q "variant h200" $dir/this.txt
        fi
        check "run the other variant" $dir/app --weights $dir/weights.bin --output $dir/other.bin --gpu rtx4090
        grep "variant\|us per run" $work/log
        check "the same numbers" python3 -c "
import numpy, sys
this, other = (numpy.fromfile(f'$dir/{name}.bin', numpy.float32).astype(float) for name in ('this', 'other'))
error = numpy.linalg.norm(this - other) / numpy.linalg.norm(this)
print(error)
sys.exit(not 0 < error < 1e-5)"
        ;;
    bench)
        # The core shapes compared with cuDNN and the published kernels; TDC_TILES=40 measures 40 tiles of
        # each scheme.
        ./tdc-gen bench configs/core-shapes.yaml --tiles-per-scheme "${TDC_TILES:-1}" --published h200-published.txt \
            --json $work/bench.json --svg $work/bench || failures=$((failures + 1))
        ./tdc-gen bench --sweep 64,28,28 --sweep-max-n 256 --json $work/sweep.json --svg $work/bench ||
            failures=$((failures + 1))
        # A network over the batch, with PyTorch; then again from its journal, which takes seconds.
        network="configs/resnet18.yaml --network --dense --batch 1,8 --out $work/network-bench"
        check "bench --network" ./tdc-gen bench $network
        check "bench --network, resumed" timeout 120 ./tdc-gen bench $network
        tail -n 12 "$work/log"
        check "bench --network without PyTorch" ./tdc-gen bench configs/resnet18.yaml --network --no-torch --rounds 1 \
            --out $work/network-bench-alone
        ;;
    tune)
        # A few tiles of every scheme, in a run that is interrupted and resumed; then code planned with the
        # measured times.
        table=$work/tuning.txt
        rm -f $table $table.journal
        few="--scheme direct --scheme pointwise --scheme tdc --top 4 --random 2 --out $table"
        check "tune, stopped" ./tdc-gen tune configs/core-shapes.yaml configs/resnet18.yaml $few --budget 0.1
        check "tune, resumed" ./tdc-gen tune configs/core-shapes.yaml configs/resnet18.yaml $few
        tail -n 3 $work/log
        check "no failed candidate" bash -c "! grep -E ' (wrong|compile_failed|launch_failed|device_lost) ' $table.journal"
        cp $table $work/first.txt
        check "nothing left to measure" ./tdc-gen tune configs/core-shapes.yaml configs/resnet18.yaml $few
        check "the same table" cmp $table $work/first.txt
        check "merge" ./tdc-gen merge $table $work/first.txt --out $work/merged.txt
        check "merge is idempotent" cmp $table $work/merged.txt
        gpu=$(sed -n 's/^gpu: //p' $table)
        check "verify by measured times" ./tdc-gen verify configs/resnet18.yaml --local-gpu --gpu "$gpu" --table $table
        check "plan by measured times" ./tdc-gen plan configs/resnet18.yaml --gpu "$gpu" --table $table
        check "tiles were chosen by measured times" grep -q " tuned " $work/log
        tail -n 1 $work/log
        ;;
    drivers)
        # The emitted C++: no warnings, two runs give the same bits, with a graph and without.
        prepare
        for network in $networks; do
            for dense in "" --dense; do
                dir=$work/$network${dense:+_dense}
                run=("$dir/app" --weights "$dir/weights.bin" --runs 20)
                check "run $network $dense" "${run[@]}" --output "$dir/first.bin"
                check "run again $network $dense" "${run[@]}" --output "$dir/second.bin" --no-graph
                check "same bits $network $dense" cmp "$dir/first.bin" "$dir/second.bin"
            done
        done
        check "core shapes right" $work/core-shapes/app
        cat $work/log
        for precision in tf32 bf16; do
            dir=$work/core-shapes_$precision
            check "generate core shapes $precision" ./tdc-gen configs/core-shapes.yaml --precision $precision --out $dir
            check "nvcc core shapes $precision" ./build.sh $dir
            check "core shapes right $precision" $dir/app
            cat $work/log
        done
        ;;
    pytorch)
        for dense in "" --dense; do
            for options in "resnet18" "resnet18 --batch 3" "resnet50" "densenet121"; do
                check "pytorch $options $dense" \
                    python3 compare_with_pytorch.py --model $options $dense --work $work
                grep "relative error against" $work/log
            done
        done
        ;;
    imports)
        # Networks of torchvision by both exporters of PyTorch; an error that is planted in any one layer must be found.
        check "imported networks" python3 check_imports.py --json $work/imports.json
        cat $work/log
        check "planted errors" python3 plant_errors.py --networks resnet18,mobilenet_v2,squeezenet1_1,lraspp_mobilenet_v3_large
        tail -n 1 $work/log
        ;;
    tutorial)
        # docs/tutorial.md from the export to its C++ program.
        check "tutorial" python3 run_tutorial.py
        cat $work/log
        ;;
    python)
        # The Python module of a network.
        check "python" python3 check_python.py --json $work/python.json
        cat $work/log
        ;;
    training)
        # The package tdc-torch: its tests on the GPU, networks of torchvision through nvcc, and the time that ADMM adds
        # to a step.
        check "tdc-torch" env TDC_GEN="$PWD/tdc-gen" python3 -m pytest -q package/python/tests/test_gpu.py
        check "tdc-torch, round trips" env TDC_GEN="$PWD/tdc-gen" python3 -m pytest -q package/python/tests/test_round_trip.py
        for options in "" --amp; do
            check "time per step $options" env PYTHONPATH=package/python/src \
                python3 package/python/experiments/step_time.py $options
            cat $work/log
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
        # A small image, so that the checkers finish within minutes.
        for dense in "" --dense; do
            dir=$work/small${dense:+_dense}
            check "generate small $dense" ./tdc-gen configs/resnet18.yaml $dense --input 1x3x64x64 --out "$dir"
            check "nvcc small $dense" ./build.sh "$dir"
            sanitize "resnet18 $dense" "$dir/app" --random 1 --runs 1 --no-graph
        done
        check "generate TDC's kernels" ./tdc-gen tdc-layers.yaml --out $work/tdc-layers
        check "nvcc TDC's kernels" ./build.sh $work/tdc-layers
        sanitize "TDC's kernels" $work/tdc-layers/app --runs 1
        ;;
    networks)
        nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
        nvcc --version | tail -n 1
        prepare
        # Results for a benchmark page; the times of single layers are in work/profile_*.txt.
        for network in $networks; do
            for dense in "" --dense; do
                name=$network${dense:+_dense}
                rm -rf $work/timed
                seconds=$(TIMEFORMAT=%R; { time ./tdc-gen configs/$network.yaml $dense --out $work/timed >/dev/null 2>&1; } 2>&1)
                bytes=$(du -sb $work/timed | cut -f 1)
                check "time $name" "$work/$name/app" --weights "$work/$name/weights.bin" --profile
                cp $work/log $work/profile_$name.txt
                check "figures of $name" summary "$name" "$seconds" "$bytes"
                cat $work/log
            done
        done
        # TDC_GPU: the name of the GPU that is planned for.
        check "network times" python3 network_times.py --gpu "${TDC_GPU:-h200}" --json $work/network-times.json
        cat $work/log
        for network in $networks; do
            check "time PyTorch $network" python3 compare_with_pytorch.py --model $network --time
            cat $work/log
        done
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
