//! The templates of generated code, embedded.

macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every template.
        pub const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!($name, ".tera")))),*];
    };
}

templates![
    "kernel/direct.cu",
    "kernel/elementwise.cu",
    "kernel/global_pool.cu",
    "kernel/linear.cu",
    "kernel/pointwise.cu",
    "kernel/pool.cu",
    "kernel/reduce.cu",
    "kernel/tdc.cu",
    "layers/CMakeLists.txt",
    "layers/README.md",
    "layers/main.cu",
    "network/CMakeLists.txt",
    "network/README.md",
    "network/main.cu",
    "network/network.cu",
    "network/network.h",
    "unit/unit.cu",
    "unit/unit.h",
];
