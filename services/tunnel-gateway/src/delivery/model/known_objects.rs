//! The pages and objects that the agent of one tunnel has, as far as this gateway knows. Only ever an optimisation: the agent says
//! itself what it lacks.

use std::collections::BTreeMap;
use std::sync::Arc;

use events::Sha256;

/// Pages of the last state that the agent took, and how often their objects occur in them.
#[derive(Debug, Default)]
pub struct KnownObjects {
    pages: BTreeMap<Sha256, Arc<[Sha256]>>,
    objects: BTreeMap<Sha256, u32>,
}

impl KnownObjects {
    /// Whether the agent has a page.
    #[must_use]
    pub fn has_page(&self, page: &Sha256) -> bool {
        self.pages.contains_key(page)
    }

    /// Whether the agent has an object.
    #[must_use]
    pub fn has_object(&self, object: &Sha256) -> bool {
        self.objects.contains_key(object)
    }

    /// The agent took a state of these pages: it has them and their objects, and perhaps nothing else.
    pub fn replace(&mut self, pages: impl IntoIterator<Item = (Sha256, Arc<[Sha256]>)>) {
        let pages: BTreeMap<_, _> = pages.into_iter().collect();
        for (page, objects) in &pages {
            if !self.pages.contains_key(page) {
                for object in objects.iter() {
                    *self.objects.entry(*object).or_insert(0) += 1;
                }
            }
        }
        for (page, objects) in &self.pages {
            if !pages.contains_key(page) {
                for object in objects.iter() {
                    let gone = self.objects.get_mut(object).is_some_and(|count| {
                        *count = count.saturating_sub(1);
                        *count == 0
                    });
                    if gone {
                        self.objects.remove(object);
                    }
                }
            }
        }
        self.pages = pages;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Sha256 {
        Sha256::of(text.as_bytes())
    }

    fn page(name: &str, objects: &[&str]) -> (Sha256, Arc<[Sha256]>) {
        (digest(name), objects.iter().map(|object| digest(object)).collect())
    }

    #[test]
    fn objects_stay_while_one_page_has_them() {
        let mut known = KnownObjects::default();
        known.replace([page("p", &["a", "b"]), page("q", &["b"])]);
        assert!(known.has_page(&digest("p")) && known.has_object(&digest("a")));
        known.replace([page("q", &["b"]), page("r", &["c"])]);
        assert!(!known.has_page(&digest("p")) && !known.has_object(&digest("a")));
        assert!(known.has_object(&digest("b")) && known.has_object(&digest("c")));
        known.replace([page("q", &["b"])]);
        assert!(known.has_object(&digest("b")) && !known.has_object(&digest("c")));
        known.replace([]);
        assert!(!known.has_page(&digest("q")) && !known.has_object(&digest("b")));
    }
}
