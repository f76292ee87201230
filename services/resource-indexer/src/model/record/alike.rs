//! What many objects have alike, behind one pointer.

use std::ops::Deref;
use std::sync::Arc;

use events::{AgentId, SourceId};

use super::{Kind, Record, Shared};
use crate::model::list::List;
use crate::model::owners::Mark;
use crate::model::text::Text;

/// What most objects of one kind in one namespace have alike.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Alike {
    /// In which agent's cluster.
    pub agent: AgentId,
    /// The kind.
    pub kind: Kind,
    /// API version under which they were read.
    pub version: Text,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Text,
    /// The source that put them there, by its mark.
    pub source: Option<SourceId>,
    /// Which tools say that they own them.
    pub marks: List<Mark>,
    /// The field managers that may own them.
    pub managers: List<Text>,
}

impl Alike {
    pub(super) fn share(this: &mut Arc<Self>, shared: &mut Shared) {
        let Shared { alike, strings, marks, managers, .. } = shared;
        alike.share(this, |alike| {
            alike.kind.share(strings);
            strings.share(&mut alike.version);
            strings.share(&mut alike.namespace);
            marks.share(&mut alike.marks, |mark| mark.share(strings));
            managers.share(&mut alike.managers, |manager| strings.share(manager));
        });
    }
}

/// What an object has alike with others is read as if it stood in its record.
impl Deref for Record {
    type Target = Alike;
    fn deref(&self) -> &Alike {
        &self.alike
    }
}
