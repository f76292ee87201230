//! One file a noun.

pub mod access;
pub mod agent;
pub mod audit;
pub mod ci;
pub mod credential;
pub mod group;
pub mod kubeconfig;
pub mod log;
pub mod login;
pub mod logout;
pub mod organization;
pub mod project;
pub mod provider;
pub mod recording;
pub mod root;
pub mod source;
pub mod token;
pub mod user;

use events::configuration::FileFinding;

/// A finding as people and editors read it: `file:line:column field: message`, without what it does not have.
fn finding(found: &FileFinding) -> String {
    let place = match (found.line, found.column) {
        (0, _) => found.file.clone(),
        (line, 0) => format!("{}:{line}", found.file),
        (line, column) => format!("{}:{line}:{column}", found.file),
    };
    let field = if found.field.is_empty() { String::new() } else { format!(" {}", found.field) };
    format!("{place}{field}: {}", found.message)
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
    }
}
