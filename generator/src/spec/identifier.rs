//! Names that generated code can carry: as a C++ namespace, in front of C symbols, as a CMake target and a header's name.

/// Keywords of C++20 and its alternative tokens.
const KEYWORDS: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t \
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype \
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long \
    mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register \
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template \
    this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor \
    xor_eq";

/// Names in the global scope that every CUDA program has, or that a compiler defines as macros.
const GLOBAL: &str = "NULL cuda linux main nv nvcuda posix std unix";

/// Headers of C and of CUDA: a generated one of the same name would be found in their place.
const HEADERS: &str = "assert complex crt ctype cuda_runtime cuda_runtime_api errno features fenv float inttypes iso646 \
    limits locale malloc math memory nvrtc pthread sched setjmp signal stdalign stdarg stdatomic stdbool stddef stdint stdio \
    stdlib stdnoreturn string strings tgmath threads time uchar unistd wchar wctype";

/// Targets that CMake's generators make themselves.
const TARGETS: &str = "ALL_BUILD INSTALL PACKAGE RUN_TESTS ZERO_CHECK all clean depend edit_cache help install list_install_components package \
     package_source preinstall rebuild_cache test";

/// Why a network or layer set cannot carry a name, of which the characters are right, and what to do; `None` when it can.
pub(crate) fn refusal(name: &str) -> Option<(&'static str, String)> {
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
            "linux",
            "math",
            "test",
            "all",
        ] {
            let (_, help) = refusal(name).unwrap_or_default();
            assert_eq!(help, format!("choose another, such as `{name}_net`"));
            assert_eq!(refusal(&format!("{name}_net")), None, "{name}");
        }
    }

    #[test]
    fn reserved_identifiers_are_refused() {
        for name in ["_", "__", "_Net", "_net", "net_", "my__net"] {
            assert!(refusal(name).is_some(), "{name}");
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
            assert_eq!(refusal(name), None, "{name}");
        }
    }
}
