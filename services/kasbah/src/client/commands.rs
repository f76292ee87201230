//! One file a noun.

pub mod access;
pub mod agent;
pub mod audit;
pub mod ci;
pub mod config;
pub mod credential;
pub mod deployment;
pub mod env;
pub mod graphql;
pub mod group;
pub mod kubeconfig;
pub mod log;
pub mod login;
pub mod logout;
pub mod objects;
pub mod open;
pub mod organization;
pub mod project;
pub mod provider;
pub mod recording;
pub mod root;
pub mod rule;
pub mod source;
pub mod subscription;
pub mod token;
pub mod user;

use events::configuration::FileFinding;

use super::print::{Cell, Fields, Paint, Style, one_line};

/// Warnings, one a line.
fn warnings(all: &[FileFinding], style: Style) -> String {
    let line = |found| Fields::new().with("Warning", Cell::painted(&one_line(&finding(found)), Paint::Odd));
    all.iter().map(|found| line(found).render(style)).collect()
}

/// A finding as people and editors read it: `file:line:column field: message`, without what it does not have.
fn finding(found: &FileFinding) -> String {
    let field = if found.field.is_empty() { String::new() } else { format!(" {}", found.field) };
    match format!("{}{field}", found.place()).trim_start() {
        "" => found.message.clone(),
        place => format!("{place}: {}", found.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_where_as_far_as_it_knows() {
        let found = |line, column, field: &str| {
            finding(&FileFinding {
                file: "config.yaml".into(),
                line,
                column,
                field: field.into(),
                message: "expected a list".into(),
            })
        };
        assert_eq!(found(3, 7, "sources[0].paths"), "config.yaml:3:7 sources[0].paths: expected a list");
        assert_eq!(found(3, 0, ""), "config.yaml:3: expected a list");
        assert_eq!(found(0, 0, ""), "config.yaml: expected a list");
        let whole = FileFinding {
            file: String::new(),
            line: 0,
            column: 0,
            field: String::new(),
            message: "x".into(),
        };
        assert_eq!(finding(&whole), "x");
    }
}
