//! "Did you mean ...?": the known word that a mistyped one is most like.

/// Longest word that is looked at for a likeness.
const MAX_WORD_CHARS: usize = 100;

/// The known word nearest to a mistyped one, when it is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.chars().count();
    let limit = length / 3 + 1;
    known
        // The distance takes time in the product of the lengths, and no name is that long.
        .filter(|candidate| length <= MAX_WORD_CHARS && candidate.len() <= MAX_WORD_CHARS)
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}
