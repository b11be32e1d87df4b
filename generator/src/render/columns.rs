//! Rows of text in columns.

/// Columns as wide as their widest cell; text is left-aligned, numbers are right-aligned.
pub fn align_columns<const N: usize>(
    rows: &[[String; N]],
    numbers: &std::ops::Range<usize>,
) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(widths).enumerate();
        let cells: Vec<_> = cells
            .map(|(column, (cell, width))| match numbers.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}
