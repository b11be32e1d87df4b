#!/usr/bin/env bash
# Compiles a generated folder with warnings as errors, all files at once; the program is FOLDER/app.
#   ./build.sh FOLDER
set -euo pipefail
folder=$1
flags="-std=c++17 -O3 -arch=native -Werror all-warnings -Xcompiler -Wall,-Wextra -I$folder/include -I$folder/src"
objects=$folder/objects
mkdir -p "$objects"
find "$folder" -name '*.cu' -print0 |
    xargs -0 -P "$(nproc)" -I{} sh -c "nvcc $flags -c {} -o $objects/\$(basename {}).o"
nvcc -arch=native "$objects"/*.o -o "$folder/app"
