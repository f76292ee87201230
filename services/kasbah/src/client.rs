//! The command-line client: speaks to the HTTP API and shows what it answers.
//!
//! It prints a token only where one is issued, sends one only to the server that it belongs to, and takes secrets from files
//! and standard input, never from the command line.

mod api;
mod commands;
mod failure;
mod feed;
mod impersonation;
mod kubeconfig;
mod lists;
mod manifests;
mod moment;
mod names;
mod oidc;
mod print;
mod session;
mod settings;
mod sign_in;
mod stored_login;

use std::process::ExitCode;

use clap::Subcommand;
use world::World;

use crate::exit;
use commands::{
    access, agent, ci, credential, deployment, env, group, log, objects, organization, project, provider,
    root, source, subscription, token, user,
};
use failure::Failure;
use print::Printer;
use session::Session;
pub use settings::Common;
use settings::ProcessEnvironment;

/// Commands of the client.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Sign in with your company's identity provider; later commands without another token use this login
    Login(With<commands::login::Login>),
    /// Sign out and revoke the login token
    Logout(With<commands::logout::Logout>),
    /// Open the web page, signed in: prints a link that signs in once
    Open(With<commands::open::Open>),
    /// Organizations: the tenants of an installation
    #[command(visible_alias = "organizations")]
    Organization(Of<organization::Command>),
    /// Groups of projects
    #[command(visible_alias = "groups")]
    Group(Of<group::Command>),
    /// Projects: each names one repository
    #[command(visible_alias = "projects")]
    Project(Of<project::Command>),
    /// Users and their roles
    #[command(visible_alias = "users")]
    User(Of<user::Command>),
    /// Identity providers for users and jobs
    #[command(visible_alias = "providers")]
    Provider(Of<provider::Command>),
    /// The root key that signs passes for clusters' APIs; for operators
    Root(Of<root::Command>),
    /// Git credentials, and your kubectl credential
    #[command(visible_alias = "credentials")]
    Credential(Of<credential::Command>),
    /// Agents: one registered identity for one cluster
    #[command(visible_alias = "agents")]
    Agent(Of<agent::Command>),
    /// Configuration files of agents
    Config(Of<commands::config::Command>),
    /// Health rules and actions of agents' configurations
    #[command(visible_alias = "rules")]
    Rule(Of<commands::rule::Command>),
    /// Write a kubeconfig for an agent's cluster, for kubectl, helm and every other client
    Kubeconfig(With<commands::kubeconfig::Kubeconfig>),
    /// CI jobs: their kubeconfigs, and tokens for them
    Ci(Of<ci::Command>),
    /// Show who did what through clusters' APIs
    Audit(With<commands::audit::Audit>),
    /// Show the recording of a session with a container, if the agent's configuration enables recording
    Recording(With<commands::recording::Recording>),
    /// Permissions for clusters' APIs
    Access(Of<access::Command>),
    /// Tokens of agents, users and jobs
    #[command(visible_alias = "tokens")]
    Token(Of<token::Command>),
    /// What is delivered, and where to.
    #[command(flatten)]
    Delivery(Box<DeliveryCommand>),
    #[command(flatten)]
    #[allow(missing_docs, reason = "a comment here would stand in the help")]
    Objects(objects::Command),
    /// Ask a GraphQL query, or follow a subscription
    Graphql(With<commands::graphql::Graphql>),
    /// The event log
    Log(Of<log::Command>),
}

/// Commands about what is delivered, and where to.
#[derive(Debug, Subcommand)]
pub enum DeliveryCommand {
    /// Manifest sources: what an agent keeps applied
    #[command(visible_alias = "sources")]
    Source(Of<source::Command>),
    /// Environments: where a project runs, and what was deployed there
    #[command(visible_aliases = ["envs", "environment", "environments"])]
    Env(Of<env::Command>),
    /// Deployments into environments, recorded by CI jobs or by hand
    #[command(visible_alias = "deployments")]
    Deployment(Of<deployment::Command>),
    /// Events for programs outside, sent to webhooks
    #[command(visible_alias = "subscriptions")]
    Subscription(Of<subscription::Command>),
}

#[derive(Debug, clap::Args)]
#[command(after_help = exit::HELP, subcommand_required = true, arg_required_else_help = true)]
#[allow(missing_docs, reason = "a comment here would stand in the help of each command")]
pub struct Of<C: Subcommand> {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: C,
}

#[derive(Debug, clap::Args)]
#[command(after_help = exit::HELP)]
#[allow(missing_docs, reason = "a comment here would stand in the help of each command")]
pub struct With<A: clap::Args> {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    wanted: A,
}

/// Runs a command; prints what it answers, or in one line why it failed.
#[must_use]
pub fn run(command: ClientCommand) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run_in_runtime(command)),
        Err(detail) => Err(Failure::Io { doing: "start".to_owned(), detail }),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run_in_runtime(command: ClientCommand) -> Result<(), Failure> {
    let world = World::real();
    let open = |common: &Common| Session::open(common, &ProcessEnvironment::of_process(), &world);
    match command {
        ClientCommand::Login(with) => commands::login::run(with.wanted, &with.common, &world).await,
        ClientCommand::Logout(with) => commands::logout::run(with.wanted, &with.common, &world).await,
        ClientCommand::Open(with) => commands::open::run(with.wanted, &open(&with.common)?).await,
        ClientCommand::Organization(of) => organization::run(of.command, &open(&of.common)?).await,
        ClientCommand::Group(of) => group::run(of.command, &open(&of.common)?).await,
        ClientCommand::Project(of) => project::run(of.command, &open(&of.common)?).await,
        ClientCommand::User(of) => user::run(of.command, &open(&of.common)?).await,
        ClientCommand::Provider(of) => provider::run(of.command, &open(&of.common)?).await,
        ClientCommand::Root(of) => root::run(of.command, &open(&of.common)?).await,
        ClientCommand::Credential(of) => credential::run(of.command, &open(&of.common)?).await,
        ClientCommand::Agent(of) => agent::run(of.command, &open(&of.common)?).await,
        ClientCommand::Config(of) => {
            commands::config::run(of.command, Printer::of(of.common.output, &world), &world)
        }
        ClientCommand::Rule(of) => {
            commands::rule::run(of.command, Printer::of(of.common.output, &world), &world)
        }
        ClientCommand::Kubeconfig(with) => commands::kubeconfig::run(with.wanted, &open(&with.common)?).await,
        ClientCommand::Ci(of) => ci::run(of.command, &of.common, &world).await,
        ClientCommand::Audit(with) => commands::audit::run(with.wanted, &open(&with.common)?).await,
        ClientCommand::Recording(with) => commands::recording::run(with.wanted, &open(&with.common)?).await,
        ClientCommand::Access(of) => access::run(of.command, &open(&of.common)?).await,
        ClientCommand::Token(of) => token::run(of.command, &open(&of.common)?).await,
        ClientCommand::Delivery(command) => run_delivery(*command, open).await,
        ClientCommand::Objects(command) => objects::run(command, open).await,
        ClientCommand::Graphql(with) => commands::graphql::run(with.wanted, &open(&with.common)?).await,
        ClientCommand::Log(of) => log::run_with(of.command, &of.common, open, &world).await,
    }
}

async fn run_delivery(
    command: DeliveryCommand,
    open: impl Fn(&Common) -> Result<Session, Failure>,
) -> Result<(), Failure> {
    match command {
        DeliveryCommand::Source(of) => source::run(of.command, open(&of.common)).await,
        DeliveryCommand::Env(of) => env::run(of.command, open(&of.common)).await,
        DeliveryCommand::Deployment(of) => deployment::run(of.command, &open(&of.common)?).await,
        DeliveryCommand::Subscription(of) => subscription::run(of.command, &open(&of.common)?).await,
    }
}

#[cfg(test)]
mod tests;
