//! `FindObjects`.

use bus::PageBuilder;
use events::Refusal;
use events::object::ObjectKey;
use events::requests::index::{FindObjects, IndexedObject};
use events::requests::page::{Page, Paged as _};

use crate::model::filter::{Behind, Matcher};
use crate::model::index::Place;
use crate::model::record::Kind;
use crate::model::text::Text;
use crate::model::view::{View, key_of};

/// Objects that are looked at in one go.
const LOOKED_AT: usize = 20_000;

/// A page of the objects that match.
///
/// # Errors
/// A filter or a cursor that cannot be read.
pub fn find(request: &FindObjects, view: &View<'_>) -> Result<Page<IndexedObject>, Refusal> {
    let mut finding = Finding::begin(request, view)?;
    while finding.go_on(view)? {}
    finding.finish()
}

/// A page that is being filled, step by step, so that the index can go on between two steps.
#[derive(Debug)]
pub struct Finding {
    matcher: Matcher,
    behind: Option<Behind>,
    page: PageBuilder<FindObjects>,
}

impl Finding {
    /// An empty page.
    ///
    /// # Errors
    /// A filter or a cursor that cannot be read.
    pub fn begin(request: &FindObjects, view: &View<'_>) -> Result<Self, Refusal> {
        let behind = request.after()?.map(|(agent, key, uid)| {
            let ObjectKey { group, kind, namespace, name } = key;
            let text = |text: String| Text::from(text.as_str());
            let place = Place { namespace: text(namespace), name: text(name), uid: text(uid) };
            Behind { agent, kind: Kind::new(&group, &kind), place }
        });
        let matcher = Matcher::read(&request.filter, view)?;
        Ok(Self { matcher, behind, page: PageBuilder::of(request) })
    }

    /// Looks at some more objects; says whether there may be others that are wanted.
    ///
    /// # Errors
    /// When an object cannot be encoded.
    pub fn go_on(&mut self, view: &View<'_>) -> Result<bool, Refusal> {
        let Self { matcher, behind, page } = self;
        let (mut looked_at, mut last) = (0, None);
        for record in matcher.candidates(view, behind.clone()).take(LOOKED_AT) {
            looked_at += 1;
            last = Some(record);
            let is_found = record.is_there() && view.sees(record) && matcher.means(view, record);
            let key = || (record.agent, key_of(record), record.uid.to_string());
            if is_found && !page.push(key(), view.line_in(record, matcher.environments()))? {
                return Ok(false);
            }
        }
        *behind = last.map(|record| Behind {
            agent: record.agent,
            kind: record.kind.clone(),
            place: Place::of(record),
        });
        Ok(looked_at == LOOKED_AT)
    }

    /// The page.
    ///
    /// # Errors
    /// When its cursor cannot be encoded.
    pub fn finish(self) -> Result<Page<IndexedObject>, Refusal> {
        self.page.finish()
    }
}
