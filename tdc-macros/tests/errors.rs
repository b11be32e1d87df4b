//! What a user of `kernel!` sees for each mistake, word for word. `TRYBUILD=overwrite` writes it anew.
//!
//! They stand here, not in the tests of `tdc`, so that only what a user of the macro compiles is compiled for them.

#[test]
fn mistakes_are_errors_at_their_words() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
