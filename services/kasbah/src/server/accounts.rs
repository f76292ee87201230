//! Accounts for NATS servers, made of what the services say of themselves.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use events::access::{Access, Permissions, inbox};
use events::subject::{Subject, partition_of_organization};
use events::{ConsumerName, OrganizationId};
use store::jetstream::ConsumerSubjects;

use super::retention;

/// Every service.
const SERVICES: [Access; 8] = [
    authz::ACCESS,
    config_fetcher::ACCESS,
    repo_poller::ACCESS,
    delivery::ACCESS,
    resource_indexer::ACCESS,
    event_relay::ACCESS,
    tunnel_gateway::ACCESS,
    console::ACCESS,
];
/// The process that runs them all, and whoever uses a log without a server.
const TOGETHER: &str = "kasbah";
/// Lets processes ask whether the servers sync before they acknowledge, and how many they are.
const DURABILITY: &str = "$SYS.REQ.SERVER.PING.JSZ";

const HEAD: &str = "\
# Accounts of a NATS server, as `kasbah nats-accounts` prints them: each service may publish and subscribe to only what it needs.
# nats-server reads the passwords from its environment; the password of an unused user may be any secret.
";

/// Settings of `kasbah nats-accounts`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct AccountsArgs {
    /// Add an account for external subscribers of this organization, which may only subscribe to its exported events and fetch them from
    /// its subscriptions' consumers; may be given more than once
    #[arg(long = "organization", value_name = "ID")]
    pub organizations: Vec<OrganizationId>,
    /// Number of partitions of the log, if it differs from the default
    #[arg(long, value_name = "NUMBER", default_value_t = store::log::PARTITIONS,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub partitions: u16,
}

impl AccountsArgs {
    /// The part of a configuration, for nats-server to include.
    #[must_use]
    pub fn text(&self) -> String {
        let organizations: BTreeSet<OrganizationId> = self.organizations.iter().copied().collect();
        let mut text = format!(
            "{HEAD}system_account: SYS\naccounts {{\n  SYS {{\n    users: [{{ user: system, password: $SYSTEM_PASSWORD }}]\n    \
             exports: [{{ service: {DURABILITY:?}, response_type: stream, accounts: [KASBAH] }}]\n  }}\n  KASBAH {{\n    \
             jetstream: enabled\n    imports: [{{ service: {{ account: SYS, subject: {DURABILITY:?} }} }}]\n    exports: [\n"
        );
        organizations.iter().for_each(|organization| add_exports(&mut text, *organization, self.partitions));
        text.push_str("    ]\n    users: [\n");
        let mut together = Permissions::default();
        together.allow_subscribe(format!("{}.>", inbox(TOGETHER)));
        for access in &SERVICES {
            together.extend(permissions(access, self.partitions));
        }
        // An operator copies a log as this user.
        together.extend(store::jetstream::copier(self.partitions));
        add_user(&mut text, TOGETHER, "KASBAH_PASSWORD", &together);
        for access in &SERVICES {
            let variable = format!("KASBAH_{}_PASSWORD", access.service.to_uppercase().replace('-', "_"));
            add_user(&mut text, access.service, &variable, &permissions(access, self.partitions));
        }
        text.push_str("    ]\n  }\n");
        organizations
            .iter()
            .for_each(|organization| add_subscriber(&mut text, *organization, self.partitions));
        text.push_str("}\n");
        text
    }
}

fn permissions(access: &Access, partitions: u16) -> Permissions {
    let mut may = bus::permissions(access);
    may.extend(store::jetstream::permissions(access, partitions));
    if access.service == retention::ACCESS.service {
        may.extend(store::jetstream::permissions(&retention::ACCESS, partitions));
    }
    may
}

/// What is exported for an organization.
fn exported(organization: OrganizationId, partitions: u16) -> String {
    let partition = partition_of_organization(organization, partitions);
    Subject::exported(partition, organization, ">").to_string()
}

fn add_user(text: &mut String, user: &str, password: &str, may: &Permissions) {
    add(text, format_args!("      {{ user: {user}, password: ${password}, permissions: {{\n"));
    for (what, subjects) in [("publish", &may.publish), ("subscribe", &may.subscribe)] {
        add(text, format_args!("        {what}: [\n"));
        for subject in subjects {
            add(text, format_args!("          {subject:?}\n"));
        }
        text.push_str("        ]\n");
    }
    text.push_str("      } }\n");
}

/// What the services' account lets an organization's account have: its events as they come, and the way to its consumers.
fn add_exports(text: &mut String, organization: OrganizationId, partitions: u16) {
    let accounts = format!("accounts: [\"{organization}\"]");
    let stream = exported(organization, partitions);
    add(text, format_args!("      {{ stream: \"{stream}\", {accounts} }}\n"));
    for ConsumerSubjects { fetch, acknowledge } in consumers(organization, partitions) {
        // One request to fetch has many answers.
        add(text, format_args!("      {{ service: \"{fetch}\", response_type: stream, {accounts} }}\n"));
        add(text, format_args!("      {{ service: \"{acknowledge}\", {accounts} }}\n"));
    }
}

fn add_subscriber(text: &mut String, organization: OrganizationId, partitions: u16) {
    let variable = organization.0.simple().to_string().to_uppercase();
    // Subjects that are subscribed to do not show how the log is partitioned.
    let (inside, subject) = (exported(organization, partitions), format!("kasbah.export.{organization}.>"));
    let stream = format!("{{ stream: {{ account: KASBAH, subject: \"{inside}\" }}, to: \"{subject}\" }}");
    add(text, format_args!("  \"{organization}\" {{\n    imports: [\n      {stream}\n"));
    let published: Vec<String> = consumers(organization, partitions)
        .flat_map(|subjects| [subjects.fetch, subjects.acknowledge])
        .collect();
    for subject in &published {
        add(text, format_args!("      {{ service: {{ account: KASBAH, subject: \"{subject}\" }} }}\n"));
    }
    let user = format!("user: \"{organization}\", password: $EXPORT_{variable}_PASSWORD");
    add(text, format_args!("    ]\n    users: [{{ {user}, permissions: {{\n      publish: [\n"));
    published.iter().for_each(|subject| add(text, format_args!("        \"{subject}\"\n")));
    // Answers come to inboxes; those of this account are no other's.
    add(text, format_args!("      ]\n      subscribe: [\"{subject}\", \"_INBOX.>\"]\n    }} }}]\n  }}\n"));
}

/// The subjects that use an organization's consumers.
fn consumers(organization: OrganizationId, partitions: u16) -> impl Iterator<Item = ConsumerSubjects> {
    ConsumerName::all(organization).map(move |name| ConsumerSubjects::of(name, partitions))
}

/// Writing into memory cannot fail.
fn add(text: &mut String, piece: std::fmt::Arguments<'_>) {
    let _infallible = text.write_fmt(piece);
}
