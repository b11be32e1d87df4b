//! The arena: one block of memory for all activation tensors and workspaces of a network. Buffers whose lifetimes do not overlap share
//! memory.

/// The lifetime of a buffer: from the first to the last layer that reads or writes it, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// Bytes.
    pub bytes: u64,
    /// Index of the first layer that reads or writes it.
    pub first: usize,
    /// Index of the last layer that reads or writes it.
    pub last: usize,
}

impl Lifetime {
    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// The offsets of all buffers in the arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arena {
    /// Byte offset of each buffer, in the order given.
    pub offsets: Vec<u64>,
    /// Bytes of the arena.
    pub bytes: u64,
    /// Bytes of the arena if no memory were shared.
    pub bytes_without_reuse: u64,
}

impl Arena {
    /// Alignment of every buffer, bytes.
    pub const ALIGNMENT: u64 = 256;

    /// Assigns offsets to the buffers, the largest first, each at the lowest offset that is free during its lifetime.
    pub fn plan(buffers: &[Lifetime]) -> Self {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&i| (std::cmp::Reverse(buffers[i].bytes), buffers[i].first, i));
        let mut offsets = vec![0; buffers.len()];
        let mut placed: Vec<usize> = Vec::new();
        let mut bytes = 0;
        for index in order {
            let buffer = &buffers[index];
            let size = buffer.bytes.next_multiple_of(Self::ALIGNMENT);
            let mut taken: Vec<(u64, u64)> = placed
                .iter()
                .filter(|&&other| buffers[other].overlaps(buffer))
                .map(|&other| {
                    let start = offsets[other];
                    (
                        start,
                        start + buffers[other].bytes.next_multiple_of(Self::ALIGNMENT),
                    )
                })
                .collect();
            taken.sort_unstable();
            let mut offset = 0;
            for (start, end) in taken {
                if offset + size <= start {
                    break;
                }
                offset = offset.max(end);
            }
            offsets[index] = offset;
            bytes = bytes.max(offset + size);
            placed.push(index);
        }
        Self {
            offsets,
            bytes,
            bytes_without_reuse: buffers
                .iter()
                .map(|buffer| buffer.bytes.next_multiple_of(Self::ALIGNMENT))
                .sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(bytes: u64, first: usize, last: usize) -> Lifetime {
        Lifetime { bytes, first, last }
    }

    fn assert_disjoint(buffers: &[Lifetime], arena: &Arena) {
        for i in 0..buffers.len() {
            assert!(arena.offsets[i] + buffers[i].bytes <= arena.bytes);
            assert_eq!(arena.offsets[i] % Arena::ALIGNMENT, 0);
            for j in 0..i {
                if buffers[i].overlaps(&buffers[j]) {
                    let (a, b) = (arena.offsets[i], arena.offsets[j]);
                    assert!(
                        a + buffers[i].bytes <= b || b + buffers[j].bytes <= a,
                        "{i} and {j}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_chain_needs_two_buffers() {
        let chain: Vec<_> = (0..10).map(|i| life(1000, i, i + 1)).collect();
        let arena = Arena::plan(&chain);
        assert_disjoint(&chain, &arena);
        assert_eq!(arena.bytes, 2 * 1024);
        assert_eq!(arena.bytes_without_reuse, 10 * 1024);
    }

    #[test]
    fn random_lives_never_overlap() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let buffers: Vec<_> = (0..30)
                .map(|_| {
                    let first = random(20) as usize;
                    life(1 + random(5000), first, first + random(6) as usize)
                })
                .collect();
            let arena = Arena::plan(&buffers);
            assert_disjoint(&buffers, &arena);
            assert!(arena.bytes <= arena.bytes_without_reuse);
        }
    }
}
