#!/bin/sh
# In the place of nvcc: every file that is asked for, empty.
folder=.
ptx=
while [ $# -gt 0 ]; do
    case $1 in
        --version)
            echo "nvcc: NVIDIA (R) Cuda compiler driver"
            echo "Copyright (c) 2005-2025 NVIDIA Corporation"
            echo "Built on Wed_Aug_20_01:58:59_PM_PDT_2025"
            echo "Cuda compilation tools, release 13.0, V13.0.88"
            exit 0
            ;;
        --list-gpu-code) echo sm_90; exit 0 ;;
        -o) : > "$2"; shift ;;
        --output-directory) folder=$2; shift ;;
        --ptx) ptx=1 ;;
        *.cu) source=$1 ;;
    esac
    shift
done
if [ -n "$ptx" ]; then
    : > "$folder/$(basename "$source" .cu).ptx"
fi
