//! Checks of names that appear in generated code: as a C++ namespace, prefix of C symbols, CMake target and file name of a header.

/// Keywords of C++20 and its alternative tokens.
const KEYWORDS: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t \
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype \
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long \
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register \
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template \
    this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor \
    xor_eq";

/// Names in the global scope of every CUDA program, names that the driver removes from its namespace, and macros that a compiler defines.
/// All other names that start with `cuda` belong to CUDA's interface.
const GLOBAL: &str = "EOF FILE INFINITY NAN NULL Network Status abort abs acos acosf asin asinf atan atan2 atanf atexit atof \
    atoi atol bsearch calloc cbrt ceil ceilf char1 char2 char3 char4 close cos cosf cosh cuda dim3 div double1 double2 double3 double4 \
    erf erfc exit exp exp2 expf fabs fabsf fclose feof ferror fflush fgetc fgets float1 float2 float3 float4 floor floorf fma fmaf \
    fmax fmaxf fmin fminf fmod fopen fprintf fputc fputs fread free frexp fseek ftell fwrite getc getchar getenv gets half half2 \
    hypot int1 int2 int3 int4 int16_t int32_t int64_t int8_t labs ldexp ldiv linux llabs log log10 log1p log2 logf long1 long2 long3 \
    long4 lrint lround lseek main malloc max max_align_t memchr memcmp memcpy memmove memset min mmap modf msync munmap \
    nan nearbyint norm nullptr_t nv nvcuda open perror posix pow powf printf ptrdiff_t putc putchar puts qsort rand read \
    realloc remainder remove rename rewind rint round rsqrt rsqrtf scanf short1 short2 short3 short4 sin sincos sinf sinh size_t \
    snprintf sprintf sqrt sqrtf srand sscanf stat std stderr stdin stdout strcat strchr strcmp strcpy strdup strerror strlen \
    strncmp strncpy strstr strtod strtof strtol strtoul system tan tanf tanh tgamma tmpfile trunc truncf uchar1 uchar2 uchar3 uchar4 uint \
    uint1 uint16_t uint2 uint3 uint32_t uint4 uint64_t uint8_t uintptr_t ulong ungetc unix ushort vfprintf vprintf warpSize wchar_t \
    write";

/// Maximum length of a name, which is a part of file names.
const MAX_NAME_CHARS: usize = 100;

/// Headers of C and of CUDA: a generated header of the same name would be included instead.
const HEADERS: &str = "assert complex crt ctype cuda_runtime cuda_runtime_api errno features fenv float inttypes iso646 \
    limits locale malloc math memory nvrtc pthread sched setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio \
    stdlib stdnoreturn string strings tgmath threads time uchar unistd wchar wctype";

/// Targets that CMake's generators create.
const TARGETS: &str = "ALL_BUILD INSTALL PACKAGE RUN_TESTS ZERO_CHECK all clean depend edit_cache help install list_install_components package \
     package_source preinstall rebuild_cache test";

/// The reason why a network or layer set cannot have a name that consists of valid characters, and a remedy; `None` if it can.
pub(crate) fn reserved_reason(name: &str) -> Option<(&'static str, String)> {
    let lists = [
        (KEYWORDS, "it is a keyword of C++"),
        (GLOBAL, "every C++ or CUDA program has that name already"),
        (HEADERS, "a header of C or CUDA has that name"),
        (TARGETS, "CMake has a target of that name"),
    ];
    let is_listed = |list: &str| list.split_ascii_whitespace().any(|word| word == name);
    if let Some((_, reason)) = lists.iter().find(|(list, _)| is_listed(list)) {
        return Some((reason, format!("choose another, such as `{name}_net`")));
    }
    if name.starts_with("cuda") {
        return Some((
            "CUDA's interface has names that begin so",
            format!("choose another, such as `net_{name}`"),
        ));
    }
    if name.len() > MAX_NAME_CHARS {
        return Some((
            "files are named by it",
            format!("take {MAX_NAME_CHARS} characters at most"),
        ));
    }
    if name.starts_with('_') || name.ends_with('_') || name.contains("__") {
        return Some((
            "C++ reserves names with _ in front and with two of them in a row, also in what is put behind this one",
            "use single _ between letters and digits".to_owned(),
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_are_refused() {
        for name in [
            "int",
            "class",
            "namespace",
            "co_await",
            "xor",
            "std",
            "main",
            "Network",
            "Status",
            "size_t",
            "stat",
            "linux",
            "math",
            "test",
            "all",
        ] {
            let (_, help) = reserved_reason(name).unwrap_or_default();
            assert_eq!(help, format!("choose another, such as `{name}_net`"));
            assert_eq!(reserved_reason(&format!("{name}_net")), None, "{name}");
        }
    }

    #[test]
    fn names_of_cuda_and_long_ones_are_refused() {
        for name in ["cudaMalloc", "cudart", &"n".repeat(101)] {
            assert!(reserved_reason(name).is_some(), "{name}");
            assert!(reserved_reason(&format!("net_{}", &name[..6])).is_none());
        }
        assert_eq!(reserved_reason(&"n".repeat(100)), None);
    }

    #[test]
    fn reserved_identifiers_are_refused() {
        for name in ["_", "__", "_Net", "_net", "net_", "my__net"] {
            assert!(reserved_reason(name).is_some(), "{name}");
        }
    }

    #[test]
    fn common_names_are_not() {
        for name in [
            "resnet18",
            "ResNet_50",
            "n",
            "integer",
            "vgg16_bn",
            "Int",
            "standard",
            "net_2",
            "x_y_z",
        ] {
            assert_eq!(reserved_reason(name), None, "{name}");
        }
    }
}
