//! The CUDA toolkits that build generated code.

/// Which toolkits know all of these architectures (compute capability times ten).
///
/// 11.8 is the first with `cudaLaunchKernelEx`, sm_89 and sm_90; 12.8 the first with sm_100 and sm_120; 12.9 the last with those
/// older than sm_75 (release notes of CUDA 11.8, 12.8 and 13.0).
pub fn cuda_versions(archs: impl IntoIterator<Item = u16>) -> &'static str {
    let (mut oldest, mut newest) = (u16::MAX, 0);
    for arch in archs {
        oldest = oldest.min(arch);
        newest = newest.max(arch);
    }
    match (newest >= 100, oldest < 75) {
        (false, false) => "CUDA 11.8 or newer",
        (false, true) => "CUDA 11.8 to 12.9",
        (true, false) => "CUDA 12.8 or newer",
        (true, true) => "CUDA 12.8 or 12.9",
    }
}

#[cfg(test)]
mod tests {
    use super::cuda_versions;

    #[test]
    fn old_and_new_architectures_narrow_the_toolkits() {
        assert_eq!(cuda_versions([90]), "CUDA 11.8 or newer");
        assert_eq!(cuda_versions([75, 89]), "CUDA 11.8 or newer");
        assert_eq!(cuda_versions([90, 70]), "CUDA 11.8 to 12.9");
        assert_eq!(cuda_versions([120, 80]), "CUDA 12.8 or newer");
        assert_eq!(cuda_versions([100, 120, 70]), "CUDA 12.8 or 12.9");
    }
}
