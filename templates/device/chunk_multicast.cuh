#ifndef TDC_CHUNK_MULTICAST
#define TDC_CHUNK_MULTICAST
// A chunk that several blocks of a cluster want at the same place of their shared memory: each fetches a part of it for all of
// them, so that it leaves the level-2 cache once. As tdc_copy_chunk(), by BLOCKS blocks of consecutive ranks from `rank` on, of which
// the caller is number `own`; the floats are a multiple of four times BLOCKS. All of them pass a barrier of the cluster between
// tdc_begin_chunks() and the first such copy. Before sm_90 each copies the chunk for itself.
template <int BLOCKS>
[[maybe_unused]] static __device__ __forceinline__ void
tdc_copy_chunk_for_all(float* shared, const float* global, int floats, float* barrier, int rank, int own) {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(at), "r"(4 * floats) : "memory");
        const int part = floats / BLOCKS;
        const unsigned short blocks = static_cast<unsigned short>(((1 << BLOCKS) - 1) << rank);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                     :
                     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared + own * part))),
                       "l"(__cvta_generic_to_global(global + own * part)), "r"(4 * part), "r"(at), "h"(blocks)
                     : "memory");
    }
#else
    static_cast<void>(rank);
    static_cast<void>(own);
    tdc_copy_chunk(shared, global, floats, barrier);
#endif
}
#endif
