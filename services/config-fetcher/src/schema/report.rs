//! What is wrong, and what is odd.

use events::configuration::FileFinding;
use objects::yaml::Node;

/// Findings and warnings that are told, at most.
pub const MAXIMUM: usize = 100;
/// Longest message, in characters.
const MESSAGE_LENGTH: usize = 500;

/// Collects findings and warnings about one file.
pub(super) struct Report {
    file: String,
    findings: Vec<FileFinding>,
    warnings: Vec<FileFinding>,
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), findings: Vec::new(), warnings: Vec::new() }
    }

    /// The value of a field is wrong.
    pub(super) fn wrong(&mut self, node: &Node, field: &str, message: impl Into<String>) {
        self.at(node.line, node.column, field, message);
    }

    pub(super) fn at(&mut self, line: u32, column: u32, field: &str, message: impl Into<String>) {
        self.findings.push(finding(&self.file, line, column, field, message.into()));
    }

    pub(super) fn whole_file(&mut self, message: &str) {
        self.at(0, 0, "", message);
    }

    /// Odd but harmless.
    pub(super) fn odd(&mut self, node: &Node, field: &str, message: impl Into<String>) {
        self.warnings.push(finding(&self.file, node.line, node.column, field, message.into()));
    }

    /// In the order of the file.
    pub(super) fn finish(mut self) -> (Vec<FileFinding>, Vec<FileFinding>) {
        for list in [&mut self.findings, &mut self.warnings] {
            list.sort_by_key(|finding| (finding.line, finding.column));
            list.truncate(MAXIMUM);
        }
        (self.findings, self.warnings)
    }
}

/// One finding.
#[must_use]
pub fn finding(file: &str, line: u32, column: u32, field: &str, message: String) -> FileFinding {
    let message = message.chars().take(MESSAGE_LENGTH).collect();
    FileFinding { file: file.to_owned(), line, column, field: field.to_owned(), message }
}
