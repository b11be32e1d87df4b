#!/usr/bin/env bash
# Compiles generated folders with warnings as errors, all files of all folders at once; the program is FOLDER/app.
# Files that have not changed are not compiled again.
#   ./build.sh FOLDER...
set -euo pipefail

# wgmma needs the architecture's own features; -arch=sm_90a would also compile for compute_90.
arch=-arch=native
if [ "$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)" = 9.0 ]; then
    arch=-gencode=arch=compute_90a,code=sm_90a
fi
export arch

compile() {  # compile FOLDER SOURCE
    nvcc -std=c++17 -O3 $arch -Werror all-warnings -Xcompiler -Wall,-Wextra \
        -I"$1/include" -I"$1/src" -c "$2" -o "$1/objects/$(basename "$2").o"
}
link() {  # link FOLDER
    nvcc $arch "$1"/objects/*.o -o "$1/app"
}
export -f compile link

# The largest first: a network's driver takes as long as several units, and should not be the last to finish.
for folder in "$@"; do
    mkdir -p "$folder/objects"
    newer=()
    if [ -e "$folder/app" ] && [ -z "$(find "$folder" -name '*.h' -newer "$folder/app")" ]; then
        newer=(-newer "$folder/app")
    fi
    find "$folder" -name '*.cu' "${newer[@]}" -printf "%s $folder %p\n"
done | sort -rn | cut -d ' ' -f 2- | xargs -r -P "$(nproc)" -n 2 bash -c 'compile "$@"' compile

for folder in "$@"; do
    if [ ! -e "$folder/app" ] || [ -n "$(find "$folder/objects" -name '*.o' -newer "$folder/app")" ]; then
        echo "$folder"
    fi
done | xargs -r -P "$(nproc)" -n 1 bash -c 'link "$@"' link
