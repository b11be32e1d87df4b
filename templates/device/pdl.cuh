#ifndef TDC_PDL
#define TDC_PDL
// Programmatic dependent launch (PDL), from sm_90 on: a kernel may start while its predecessor on the
// stream still runs. Before sm_90, and in a launch without the attribute, the functions do nothing.

// Waits until the predecessor kernels have finished and their writes are visible. Before it a thread may
// read packed weights and bias, which no kernel writes, and access its own shared memory; nothing else.
[[maybe_unused]] static __device__ __forceinline__ void tdc_pdl_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// Lets the successor kernel start once all blocks have called it. Not before their own wait, or blocks of
// several kernels would compete for the SMs.
[[maybe_unused]] static __device__ __forceinline__ void tdc_pdl_trigger() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void tdc_pdl_wait_and_trigger() {
    tdc_pdl_wait();
    tdc_pdl_trigger();
}
#endif
