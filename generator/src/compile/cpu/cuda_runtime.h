// CUDA C++ on the CPU: stands in for the CUDA runtime's own header, for tests on machines without a GPU.
//
//     g++ -std=c++17 -x c++ -I<folder of this file> -pthread network.cu
//
// compiles kernels and the host code that launches them, unchanged, as long as they use triple-chevron-free launches
// (cudaLaunchKernelEx, cudaLaunchKernel), declare dynamic shared memory through TDC_DYNAMIC_SHARED (all of their shared memory
// if they form clusters) and keep inline PTX to the device prelude, which prelude.h replaces.
// It says whether the results are right, never how fast a GPU would be.
//
// Harsher than a GPU where a GPU lets mistakes pass:
//   - the threads of a block run one after the other up to the next barrier, in a shuffled order that changes at every barrier;
//     blocks are shuffled too (TDC_CPU_SEED picks another order, TDC_CPU_THREADS the number of OS threads);
//   - shared memory is filled with NaN bits before every block, device memory when it is allocated;
//   - a barrier that some thread of the block never reaches is an error, and so is one that threads meet in different lines;
//   - asynchronous copies arrive when they are waited for, and leave NaNs until then;
//   - the blocks of a cluster take turns at random between their barriers, and what a block leaves behind is NaNs;
//   - device allocations have guards around them, and copies must stay inside them.
// None of this aborts: a launch that breaks a rule stops and returns an error, tdc_cpu_last_error() says what happened.
//
// Every translation unit that includes this file can carry the engine (the definitions are weak, one survives). When many are
// linked together, -DTDC_CPU_ENGINE_ELSEWHERE leaves it out of all but one and makes them cheaper to parse.
#pragma once

#define TDC_CPU_EMULATION 1

// nvcc's `#pragma unroll` is unknown to host compilers and harmless.
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
