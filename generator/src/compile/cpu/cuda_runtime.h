// CUDA C++ on the CPU: replaces the header of the CUDA runtime, for tests on machines without a GPU.
//
//     g++ -std=c++17 -x c++ -I<folder of this file> -pthread network.cu
//
// compiles kernels and the host code that launches them, unchanged, if they launch with cudaLaunchKernelEx or
// cudaLaunchKernel (not with triple chevrons), declare dynamic shared memory with TDC_DYNAMIC_SHARED (all of
// their shared memory if they use clusters), and use inline PTX in the device header only, which prelude.h
// replaces. It shows whether results are correct; its speed says nothing about a GPU.
//
// It is stricter than a GPU, which does not detect these errors:
//   - the threads of a block run one after another up to the next barrier, in an order that is shuffled again at every
//     barrier; blocks are shuffled too (TDC_CPU_SEED selects a different order, TDC_CPU_THREADS the number of OS threads);
//   - shared memory is filled with NaN bits before every block, device memory when it is allocated;
//   - a barrier that not all threads of the block reach is an error, and so is one reached in different lines;
//   - asynchronous copies arrive when they are waited for; until then the destination has NaNs;
//   - the blocks of a cluster run in random order between their barriers, and the memory of an exited block becomes NaNs;
//   - device allocations have guards around them, and copies must stay inside them.
// Nothing aborts: a launch with a violation stops and returns an error, and tdc_cpu_last_error() describes
// it.
//
// Every translation unit that includes this file can contain the engine (the definitions are weak, one is
// kept). When many are linked together, -DTDC_CPU_ENGINE_ELSEWHERE omits it from all but one, which compiles
// faster.
#pragma once

#define TDC_CPU_EMULATION 1

// Host compilers do not know nvcc's `#pragma unroll`, which is harmless.
#pragma GCC diagnostic ignored "-Wunknown-pragmas"

#include "tdc_cpu/language.h"
#include "tdc_cpu/execution.h"
#include "tdc_cpu/device.h"
#include "tdc_cpu/prelude.h"
#include "tdc_cpu/runtime_api.h"

#ifndef TDC_CPU_ENGINE_ELSEWHERE
#include "tdc_cpu/scheduler.h"
#include "tdc_cpu/runtime.h"
#endif
