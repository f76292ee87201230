//! What one request may need. Each limit has a name, which the error says.
//!
//! The document is measured before anything walks through its fragments: a fragment that spreads another twice, which does the same, doubles
//! the work with each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_graphql::extensions::{Extension, ExtensionContext, ExtensionFactory, NextValidation};
use async_graphql::parser::parse_query;
use async_graphql::parser::types::{ExecutableDocument, OperationType, Selection, SelectionSet};
use async_graphql::{ServerError, ValidationResult};

use super::failure;

/// `queryBytes`: length of the query's text.
pub const MAXIMUM_QUERY_BYTES: usize = 32 * 1024;
/// `depth`: levels of fields. The usual introspection query has 14.
pub const MAXIMUM_DEPTH: usize = 16;
/// `fields`: fields in the text, those of a fragment counted each time that it is spread.
pub const MAXIMUM_FIELDS: usize = 2_000;
/// `introspectionLists`: lists within lists that one introspection goes through.
pub const MAXIMUM_INTROSPECTION_LISTS: usize = 4;
/// `cost`: fields that the answer may have. A page costs as much as the items that it may hold, and a field that asks a service
/// [`ASKING`] more.
pub const MAXIMUM_COST: usize = 100_000;
/// `requests`: requests to other services that answer one operation.
pub const MAXIMUM_REQUESTS: usize = 64;
/// `subscriptions`: subscriptions that one user has open at a time.
pub const MAXIMUM_SUBSCRIPTIONS: usize = 20;
/// `allSubscriptions`: subscriptions that are open at a time in one process.
pub const MAXIMUM_ALL_SUBSCRIPTIONS: usize = 1_000;
/// `webSockets`: WebSockets that one user has open at a time.
pub const MAXIMUM_SOCKETS: usize = 20;
/// `allWebSockets`: WebSockets that are open at a time in one process.
pub const MAXIMUM_ALL_SOCKETS: usize = 1_000;

/// What a request to another service costs.
pub const ASKING: usize = 10;
/// Items of a page, if the query does not say.
pub const FIRST: usize = 50;
/// Nodes of a tree within another answer, if the query does not say.
pub const NODES: usize = 200;
/// Brackets within brackets, beyond which the text is not even parsed.
const MAXIMUM_BRACKETS: usize = 64;
/// Lists of the introspection types.
const INTROSPECTION_LISTS: [&str; 8] =
    ["types", "fields", "args", "inputFields", "interfaces", "possibleTypes", "enumValues", "directives"];

/// The cost of a tree with these nodes.
pub(super) const fn tree(first: Option<u16>, of_one: usize) -> usize {
    let first = match first {
        Some(first) => first as usize,
        None => NODES,
    };
    ASKING.saturating_add(first.saturating_mul(of_one))
}

/// The cost of a page with these items.
pub(super) const fn page(first: Option<u16>, of_one: usize) -> usize {
    let first = match first {
        Some(first) => first as usize,
        None => FIRST,
    };
    ASKING.saturating_add(first.saturating_mul(of_one))
}

/// Parses a query, if it is within the limits that its text shows.
///
/// # Errors
/// The limit that it exceeds, or what is wrong with its text.
pub fn parse(query: &str) -> Result<ExecutableDocument, Vec<ServerError>> {
    if query.len() > MAXIMUM_QUERY_BYTES {
        let advice = "send what varies as variables";
        return Err(vec![failure::limit("queryBytes", MAXIMUM_QUERY_BYTES, Some(query.len()), advice)]);
    }
    if brackets(query) > MAXIMUM_BRACKETS {
        return Err(vec![too_deep(None)]);
    }
    let document = parse_query(query).map_err(|error| vec![error.into()])?;
    measure(&document).map_err(|error| vec![error])?;
    Ok(document)
}

/// How deep brackets are nested. Those in texts count as well, which never makes it less.
fn brackets(query: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    for byte in query.bytes() {
        match byte {
            b'{' | b'[' | b'(' => depth = depth.saturating_add(1),
            // A bracket in a text may close what is open: without this it would hide what follows.
            b'}' | b']' | b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

fn too_deep(needed: Option<usize>) -> ServerError {
    failure::limit("depth", MAXIMUM_DEPTH, needed, "ask for the inner fields in a query of their own")
}

/// What a set of fields needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    depth: usize,
    fields: usize,
    lists: usize,
}

impl Size {
    fn beside(self, other: Self) -> Self {
        Self {
            depth: self.depth.max(other.depth),
            fields: self.fields.saturating_add(other.fields),
            lists: self.lists.max(other.lists),
        }
    }

    fn below(self, field: &str) -> Self {
        let is_list = INTROSPECTION_LISTS.contains(&field);
        Self {
            depth: self.depth.saturating_add(1),
            fields: self.fields.saturating_add(1),
            lists: self.lists.saturating_add(usize::from(is_list)),
        }
    }
}

fn measure(document: &ExecutableDocument) -> Result<(), ServerError> {
    let mut measured = Measured { document, fragments: BTreeMap::new() };
    for (_, operation) in document.operations.iter() {
        let set = &operation.node.selection_set.node;
        if operation.node.ty == OperationType::Subscription && !is_one_field(set) {
            return Err(ServerError::new("a subscription has exactly one field", Some(operation.pos)));
        }
        let size = measured.set(set)?;
        if size.depth > MAXIMUM_DEPTH {
            return Err(too_deep(Some(size.depth)));
        }
        if size.fields > MAXIMUM_FIELDS {
            let advice = "ask for less at once";
            return Err(failure::limit("fields", MAXIMUM_FIELDS, Some(size.fields), advice));
        }
    }
    Ok(())
}

fn is_one_field(set: &SelectionSet) -> bool {
    matches!(set.items.as_slice(), [only] if matches!(only.node, Selection::Field(_)))
}

struct Measured<'a> {
    document: &'a ExecutableDocument,
    /// `None` while it is measured: a fragment that leads to itself.
    fragments: BTreeMap<&'a str, Option<Size>>,
}

impl<'a> Measured<'a> {
    fn set(&mut self, set: &'a SelectionSet) -> Result<Size, ServerError> {
        let mut all = Size::default();
        for selection in &set.items {
            let one = match &selection.node {
                Selection::Field(field) => {
                    let name = field.node.name.node.as_str();
                    let below = self.set(&field.node.selection_set.node)?;
                    let size = below.below(name);
                    if matches!(name, "__schema" | "__type") && size.lists > MAXIMUM_INTROSPECTION_LISTS {
                        let advice = "ask for inner types by `__type(name:)`";
                        let needed = Some(size.lists);
                        let maximum = MAXIMUM_INTROSPECTION_LISTS;
                        return Err(failure::limit("introspectionLists", maximum, needed, advice));
                    }
                    size
                }
                Selection::InlineFragment(inner) => self.set(&inner.node.selection_set.node)?,
                Selection::FragmentSpread(spread) => {
                    self.fragment(spread.node.fragment_name.node.as_str())?
                }
            };
            all = all.beside(one);
        }
        Ok(all)
    }

    /// Measured once, however often it is spread. One that is not there is for the validation to say.
    fn fragment(&mut self, name: &str) -> Result<Size, ServerError> {
        let Some((name, fragment)) = self.document.fragments.get_key_value(name) else {
            return Ok(Size::default());
        };
        match self.fragments.get(name.as_str()) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => {
                return Err(ServerError::new(format!("fragment {name} leads to itself"), Some(fragment.pos)));
            }
            None => {}
        }
        self.fragments.insert(name.as_str(), None);
        let size = self.set(&fragment.node.selection_set.node)?;
        self.fragments.insert(name.as_str(), Some(size));
        Ok(size)
    }
}

/// Refuses an operation whose answer may become too large.
pub struct CostLimit;

impl ExtensionFactory for CostLimit {
    fn create(&self) -> Arc<dyn Extension> {
        Arc::new(Self)
    }
}

#[async_graphql::async_trait::async_trait]
impl Extension for CostLimit {
    async fn validation(
        &self,
        context: &ExtensionContext<'_>,
        next: NextValidation<'_>,
    ) -> Result<ValidationResult, Vec<ServerError>> {
        let validated = next.run(context).await?;
        if validated.complexity > MAXIMUM_COST {
            let advice = "ask for smaller pages or fewer fields";
            return Err(vec![failure::limit("cost", MAXIMUM_COST, Some(validated.complexity), advice)]);
        }
        Ok(validated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exceeded(query: &str) -> String {
        let errors = parse(query).unwrap_err();
        let limit = errors[0].extensions.as_ref().and_then(|extensions| extensions.get("limit").cloned());
        limit.map_or_else(|| errors[0].message.clone(), |limit| limit.to_string())
    }

    #[test]
    fn each_limit_is_named() {
        let long = format!("{{ a }} # {}", "x".repeat(MAXIMUM_QUERY_BYTES));
        assert_eq!(exceeded(&long), "\"queryBytes\"");
        let nested = |levels: usize| format!("{}{}", "{a".repeat(levels), "}".repeat(levels));
        assert!(parse(&nested(MAXIMUM_DEPTH)).is_ok());
        assert_eq!(exceeded(&nested(MAXIMUM_DEPTH + 1)), "\"depth\"");
        assert_eq!(exceeded(&nested(5_000)), "\"depth\"");
        assert_eq!(exceeded(&format!("{{a(b: {})}}", "[".repeat(20_000))), "\"depth\"");
        let wide = format!("{{ {} }}", "a ".repeat(MAXIMUM_FIELDS + 1));
        assert_eq!(exceeded(&wide), "\"fields\"");
        let introspection =
            "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }";
        assert!(parse(introspection).is_ok());
        let deeper = introspection.replace("{ name }", "{ args { name } }");
        assert_eq!(exceeded(&deeper), "\"introspectionLists\"");
    }

    #[test]
    fn fragments_are_measured_without_walking_through_each_spread() {
        let mut query = "{ ...f0 } ".to_owned();
        for number in 0..200 {
            query += &format!("fragment f{number} on Query {{ ...f{0} ...f{0} }} ", number + 1);
        }
        query += "fragment f200 on Query { a }";
        assert_eq!(exceeded(&query), "\"fields\"");
        assert!(
            exceeded("{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }").contains("itself")
        );
    }

    #[test]
    fn a_subscription_has_one_field() {
        assert!(parse("subscription { a }").is_ok());
        for wrong in ["subscription { a b }", "subscription { ...f } fragment f on S { a }"] {
            assert!(exceeded(wrong).contains("exactly one field"), "{wrong}");
        }
    }
}
