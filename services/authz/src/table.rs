//! Who may do what: the table action × role, as data. What it does not name is denied.

use events::directory::Role;
use events::requests::authz::Action;

/// One answer of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// In the role's scope and everything below it.
    Yes,
    /// Only on oneself.
    Self_,
    /// Never.
    No,
}

/// One action with its answer for each role in the order of [`COLUMNS`], and for services acting by themselves.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The action.
    pub action: Action,
    /// One answer a role.
    pub roles: [Cell; COLUMNS.len()],
    /// Whether a service of Kasbah needs it.
    pub service: bool,
}

/// The roles, in the order of the answers in [`Row::roles`].
pub const COLUMNS: [Role; 7] =
    [Role::Operator, Role::Owner, Role::Maintainer, Role::Developer, Role::Viewer, Role::Job, Role::Agent];

const Y: Cell = Cell::Yes;
const S: Cell = Cell::Self_;
const N: Cell = Cell::No;

const fn row(action: Action, roles: [Cell; COLUMNS.len()], service: bool) -> Row {
    Row { action, roles, service }
}

/// The table. An operator's role holds in all organizations, but gives only what stands in its column: nothing of what
/// tenants have.
pub const TABLE: &[Row] = &[
    //                              operator, owner, maintainer, developer, viewer, job, agent;  service
    row(Action::CreateOrganization, [Y, N, N, N, N, N, N], false),
    row(Action::RotateRoot, [Y, N, N, N, N, N, N], false),
    row(Action::ReadOrganization, [Y, Y, Y, Y, Y, N, N], true),
    row(Action::CreateGroup, [N, Y, N, N, N, N, N], false),
    row(Action::CreateProject, [N, Y, Y, N, N, N, N], false),
    row(Action::ReadProject, [N, Y, Y, Y, Y, Y, N], true),
    row(Action::ChangeProject, [N, Y, Y, N, N, N, N], false),
    row(Action::DeleteProject, [N, Y, Y, N, N, N, N], false),
    row(Action::DeleteGroup, [N, Y, N, N, N, N, N], false),
    row(Action::ReadUsers, [N, Y, Y, N, N, N, N], false),
    row(Action::CreateUser, [N, Y, N, N, N, N, N], false),
    row(Action::DisableUser, [N, Y, N, N, N, N, N], false),
    row(Action::SetTokenLifetimes, [N, Y, N, N, N, N, N], false),
    row(Action::AssignRole, [N, Y, N, N, N, N, N], false),
    row(Action::CreateCredential, [N, Y, N, N, N, N, N], false),
    row(Action::ReadCredentials, [N, Y, Y, N, N, N, N], false),
    row(Action::GrantCredential, [N, Y, N, N, N, N, N], false),
    row(Action::RevokeCredential, [N, Y, N, N, N, N, N], false),
    row(Action::RegisterAgent, [N, Y, Y, N, N, N, N], false),
    row(Action::ReadAgent, [N, Y, Y, Y, Y, Y, N], true),
    row(Action::DeleteAgent, [N, Y, Y, N, N, N, N], false),
    row(Action::IssueAgentToken, [N, Y, Y, N, N, N, N], false),
    row(Action::ManageJobTokens, [N, Y, Y, N, N, N, N], false),
    row(Action::ReadTokens, [N, Y, Y, N, N, N, N], true),
    row(Action::RevokeToken, [N, Y, Y, N, N, N, N], false),
    row(Action::ConnectAgent, [N, N, N, N, N, N, S], false),
    row(Action::ReadSource, [N, Y, Y, Y, Y, Y, S], true),
    row(Action::SyncSource, [N, Y, Y, Y, N, Y, N], true),
    row(Action::SuspendSource, [N, Y, Y, N, N, N, N], false),
    row(Action::PinSource, [N, Y, Y, N, N, N, N], false),
    row(Action::ConfirmSource, [N, Y, Y, N, N, N, N], false),
    row(Action::DiffSource, [N, Y, Y, Y, N, Y, N], false),
    row(Action::ReadLog, [N, Y, Y, N, N, N, N], true),
    row(Action::ReadRecordings, [N, Y, N, N, N, N, N], false),
    row(Action::VerifyLog, [Y, Y, N, N, N, N, N], true),
    row(Action::AnnouncePush, [N, Y, Y, Y, N, Y, N], true),
    row(Action::ReadRepository, [N, N, N, N, N, N, N], true),
    row(Action::ManageUserTokens, [N, Y, N, N, N, N, N], false),
    row(Action::ManageIdentityProviders, [N, Y, N, N, N, N, N], false),
    row(Action::ReadEnvironment, [N, Y, Y, Y, Y, Y, N], true),
    row(Action::ManageEnvironment, [N, Y, Y, N, N, N, N], false),
    row(Action::StopEnvironment, [N, Y, Y, Y, N, Y, N], false),
    row(Action::RecordDeployment, [N, Y, Y, Y, N, Y, N], false),
    row(Action::ManageSubscriptions, [N, Y, N, N, N, N, N], false),
];

/// What the table answers a role; no when it says nothing.
#[must_use]
pub fn cell(action: Action, role: Role) -> Cell {
    let row = TABLE.iter().find(|row| row.action == action);
    let column = COLUMNS.iter().position(|column| *column == role);
    row.zip(column).and_then(|(row, column)| row.roles.get(column)).copied().unwrap_or(Cell::No)
}

/// Whether services acting by themselves may do it.
#[must_use]
pub fn service_may(action: Action) -> bool {
    TABLE.iter().any(|row| row.action == action && row.service)
}

/// The roles that may do it, for saying what is missing.
pub fn roles_that_may(action: Action) -> impl Iterator<Item = Role> {
    COLUMNS.into_iter().filter(move |role| cell(action, *role) == Cell::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_written_once() {
        assert_eq!(COLUMNS.as_slice(), Role::ALL, "a role without a column");
        for action in Action::ALL {
            let rows = TABLE.iter().filter(|row| row.action == *action).count();
            assert_eq!(rows, 1, "{action:?} has {rows} rows");
        }
        assert_eq!(TABLE.len(), Action::ALL.len(), "an action is missing in Action::ALL");
    }

    /// The table as `docs/reference/authorization.md` shows it.
    fn markdown() -> String {
        let name = |value: &dyn std::fmt::Debug| format!("{value:?}");
        let mut text = String::from("| Action |");
        text.extend(COLUMNS.iter().map(|role| format!(" {} |", name(role).to_lowercase())));
        text += " services |\n|---|";
        text += &"---|".repeat(COLUMNS.len() + 1);
        for row in TABLE {
            text += &format!("\n| {} |", name(&row.action));
            text.extend(row.roles.iter().map(|cell| match cell {
                Cell::Yes => " yes |",
                Cell::Self_ => " itself |",
                Cell::No => " |",
            }));
            text += if row.service { " yes |" } else { " |" };
        }
        text + "\n"
    }

    #[test]
    fn the_page_shows_this_table() {
        let page = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/authorization.md"
        ));
        let table = markdown();
        assert!(
            page.unwrap().contains(&table),
            "docs/reference/authorization.md must hold this table:\n{table}"
        );
    }

    #[test]
    fn an_agent_may_only_connect_and_read_its_own_sources() {
        let may: Vec<_> =
            Action::ALL.iter().filter(|action| cell(**action, Role::Agent) != Cell::No).collect();
        assert_eq!(may, [&Action::ConnectAgent, &Action::ReadSource]);
        assert!(Action::ALL.iter().all(|action| cell(*action, Role::Agent) != Cell::Yes));
    }

    #[test]
    fn each_lesser_role_may_do_no_more_than_the_greater() {
        let ladder = [Role::Owner, Role::Maintainer, Role::Developer, Role::Viewer];
        for pair in ladder.windows(2) {
            for action in Action::ALL {
                let exceeds = cell(*action, pair[1]) == Cell::Yes && cell(*action, pair[0]) != Cell::Yes;
                assert!(!exceeds, "{:?} may {action:?}, {:?} may not", pair[1], pair[0]);
            }
        }
    }

    #[test]
    fn nothing_of_a_tenants_is_in_the_operators_column() {
        let may: Vec<_> =
            Action::ALL.iter().filter(|action| cell(**action, Role::Operator) == Cell::Yes).collect();
        let of_the_installation =
            [Action::CreateOrganization, Action::ReadOrganization, Action::VerifyLog, Action::RotateRoot];
        assert_eq!(may, of_the_installation.iter().collect::<Vec<_>>());
    }
}
