//! The CUDA toolkits that build generated code.

/// The toolkits that support all of these architectures (compute capability times ten).
///
/// 11.8 is the first with `cudaLaunchKernelEx` and sm_89. 12.1 is the first whose assembler (PTX 8.1) supports asynchronous stores to other
/// blocks of a cluster, which generated code for sm_90 and later contains. 12.8 is the first with sm_100 and sm_120. 12.9 is the last with
/// architectures older than sm_75 (release notes of CUDA 11.8, 12.8 and 13.0, PTX ISA).
pub fn cuda_versions(archs: impl IntoIterator<Item = u16>) -> &'static str {
    let (mut oldest, mut newest) = (u16::MAX, 0);
    for arch in archs {
        oldest = oldest.min(arch);
        newest = newest.max(arch);
    }
    match (newest, oldest < 75) {
        (..90, false) => "CUDA 11.8 or newer",
        (..90, true) => "CUDA 11.8 to 12.9",
        (..100, false) => "CUDA 12.1 or newer",
        (..100, true) => "CUDA 12.1 to 12.9",
        (_, false) => "CUDA 12.8 or newer",
        (_, true) => "CUDA 12.8 or 12.9",
    }
}

#[cfg(test)]
mod tests {
    use super::cuda_versions;

    #[test]
    fn old_and_new_architectures_narrow_the_toolkits() {
        assert_eq!(cuda_versions([90]), "CUDA 12.1 or newer");
        assert_eq!(cuda_versions([75, 89]), "CUDA 11.8 or newer");
        assert_eq!(cuda_versions([70, 86]), "CUDA 11.8 to 12.9");
        assert_eq!(cuda_versions([90, 70]), "CUDA 12.1 to 12.9");
        assert_eq!(cuda_versions([120, 80]), "CUDA 12.8 or newer");
        assert_eq!(cuda_versions([100, 120, 70]), "CUDA 12.8 or 12.9");
    }
}
