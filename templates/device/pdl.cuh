#ifndef TDC_PDL
#define TDC_PDL
// Programmatic dependent launch, from sm_90 on: a launch may begin while the one ahead of it on the stream still runs. Before
// sm_90, and where the launch does not ask for it, the functions do nothing.

// Waits until the launches ahead have ended and all that they wrote can be read. Before it a thread may read packed weights and
// bias, which no launch writes, and write its own shared memory; nothing else.
[[maybe_unused]] static __device__ __forceinline__ void tdc_pdl_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" : : : "memory");
#endif
}

// Lets the next launch begin, once all blocks have come here. Not before their own wait, or launches would pile up on the
// multiprocessors and the blocks of each lie where the others left room.
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
