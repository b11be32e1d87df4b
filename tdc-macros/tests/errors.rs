//! The compiler output for errors in `kernel!`, verbatim. `TRYBUILD=overwrite` updates it.
//!
//! These tests are not in `tdc`, so that only the dependencies of a user of the macro are compiled for them.

#[test]
fn mistakes_are_errors_at_their_words() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
