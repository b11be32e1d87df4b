//! "Did you mean ...?": finds the known name that is most similar to a mistyped one.

/// Length of the longest name for which a similar one is searched.
const MAX_WORD_CHARS: usize = 100;

/// The known name nearest to a mistyped one, if it is similar enough.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let limit = length / 3 + 1;
    known
        // The edit distance takes time proportional to the product of the lengths, and no known name is that
        // long.
        .filter(|candidate| length <= MAX_WORD_CHARS && candidate.len() <= MAX_WORD_CHARS)
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}
