#ifndef TDC_DYNAMIC_SHARED
// Declares a pointer to the block's dynamic shared memory, aligned to 16 bytes.
#define TDC_DYNAMIC_SHARED(type, name)                                    \
    extern __shared__ __align__(16) unsigned char tdc_dynamic_shared[]; \
    type* const name = reinterpret_cast<type*>(tdc_dynamic_shared)
#endif
