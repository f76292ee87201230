//! Cutting a text into documents at the lines where kubectl cuts it.

use super::YamlError;

/// A piece of the text that holds one document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk<'a> {
    pub text: &'a str,
    /// Lines of the whole text before this one.
    pub lines_before: u32,
}

/// Cuts at lines that start with `---`, wherever they stand: kubectl does not ask whether one is inside a scalar.
/// Such a line may carry a comment, and nothing else.
pub(super) fn documents(text: &str, lines_before: u32) -> Result<Vec<Chunk<'_>>, YamlError> {
    let mut chunks = Vec::new();
    let mut start = 0;
    let mut start_line = lines_before;
    let mut offset = 0;
    let mut line_number = lines_before;
    for line in text.split_inclusive('\n') {
        line_number = line_number.saturating_add(1);
        let end = offset + line.len();
        if let Some(after) = line.strip_prefix("---") {
            let after_trimmed = after.trim();
            if !after_trimmed.is_empty() && !after_trimmed.starts_with('#') {
                let shown: String = after_trimmed.chars().take(40).collect();
                return Err(YamlError::new(
                    line_number,
                    4,
                    format!("'{shown}' after the document separator '---'; move it to a line of its own"),
                ));
            }
            push(&mut chunks, text.get(start..offset), start_line);
            start = end;
            start_line = line_number;
        }
        offset = end;
    }
    push(&mut chunks, text.get(start..), start_line);
    Ok(chunks)
}

fn push<'a>(chunks: &mut Vec<Chunk<'a>>, text: Option<&'a str>, lines_before: u32) {
    chunks.extend(text.filter(|text| !text.is_empty()).map(|text| Chunk { text, lines_before }));
}
