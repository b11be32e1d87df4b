#ifndef TDC_DYNAMIC_SHARED
// A block's dynamic shared memory, aligned to 16 bytes, under a name and type of the kernel's own.
extern __shared__ __align__(16) unsigned char tdc_dynamic_shared[];
#define TDC_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(tdc_dynamic_shared)
#endif
