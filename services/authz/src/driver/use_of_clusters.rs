//! The use of clusters' APIs.

use events::directory::{Role, Scope};
use events::grants::UserAccessAs;
use events::pass::{AccessAs, Impersonated};
use events::requests::authz::{CanUse, UseDecision};
use events::{Actor, Refusal, RefusalKind, UserId};

use super::{Driver, gone};
use crate::model::Asker;
use crate::model::access::word;
use crate::model::grants::Use;

/// The group of all people whom Kasbah lets in as themselves.
const PEOPLE: &str = "kasbah:user";

impl Driver {
    pub(super) async fn can_use(self, asker: Asker, request: CanUse) -> Result<UseDecision, Refusal> {
        let user = match (&request.user, &asker.actor) {
            (Some(other), _) => self.another_user(&asker, other).await?,
            (None, Actor::User(user)) => *user,
            (None, _) => {
                return Err(Refusal::invalid("user", "must be given, as the asker is no person"));
            }
        };
        let decided = self.directory.read(|directory| {
            let (agent, _) = directory.visible_agent(&asker, &request.agent)?;
            Ok::<_, Refusal>(directory.decide_use(agent, user, &request.attributes))
        })?;
        match decided {
            Use::Withheld { reason } => Ok(UseDecision { allowed: false, access_as: None, reason }),
            Use::Granted { access_as: UserAccessAs::Agent, reason, .. } => {
                Ok(UseDecision { allowed: true, access_as: Some(AccessAs::Agent), reason })
            }
            Use::Granted { access_as: UserAccessAs::User, roles, reason } => {
                let access_as = AccessAs::Impersonated(self.impersonated(user, &roles).await?);
                Ok(UseDecision { allowed: true, access_as: Some(access_as), reason })
            }
        }
    }

    /// A person as the cluster sees them, with the roles that let them in as groups.
    async fn impersonated(&self, user: UserId, roles: &[(Role, Scope)]) -> Result<Impersonated, Refusal> {
        let view = self.directory.read(|directory| directory.user_view(user)).ok_or_else(gone)?;
        let name = self.named_view(view).await?.name;
        let name = name.ok_or_else(|| Refusal::new(RefusalKind::Denied, "the user's name was erased"))?;
        let groups = roles.iter().filter_map(|(role, scope)| match scope {
            Scope::Project(id) => Some(format!("kasbah:project_role:{id}:{}", word(*role))),
            Scope::Group(id) => Some(format!("kasbah:group_role:{id}:{}", word(*role))),
            Scope::Organization(_) | Scope::Agent(_) => None,
        });
        let groups = std::iter::once(PEOPLE.to_owned()).chain(groups).collect();
        let username = format!("{PEOPLE}:{name}");
        Ok(Impersonated { username, groups, uid: user.to_string(), extra: std::collections::BTreeMap::new() })
    }
}
