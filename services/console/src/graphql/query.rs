//! The fields of `Query`, each a request or a few over the bus.

use async_graphql::{Context, ID, Object, Result};
use events::directory::Scope;
use events::requests::authz::{ListAgents, ShowAgent, ShowProject};
use events::requests::delivery::{ListSources, ListSyncs, ShowSource, SourceSync, SourceView};
use events::requests::environments::ListEnvironments;
use events::requests::index::{
    ExplainHealth, FindObjects, IndexedObject, Moment as BusMoment, ObjectDetail, ObjectFilter, ShowIndexed,
    ShowNetwork, ShowTiers, ShowTree,
};
use events::requests::page::{Page, PageCursor};
use events::{AgentId, Refusal, RefusalKind};
use objects::digest::Status;
use serde_json::Value;

use super::asker::Asker;
use super::changes::{self, Wanted};
use super::failure;
use super::limits;
use super::page::{self, Items};
use super::types::agent::{Agent, Project};
use super::types::environment::{self, Environment, EnvironmentState, Tier, TierHealth};
use super::types::filter::ResourceFilter;
use super::types::network::Network;
use super::types::resource::{
    AsOf, Change, ClusterCoverage, Coverage, Diff, ListExtra, ReasonChain, Resource, ResourceDetail,
    ResourceTree, TreeNode, Why,
};
use super::types::rights::{OrganizationAction, OrganizationRight, decided};
use super::types::scalar::{Moment, Position};
use super::types::source::{Source, Sync};

/// Everything that can be asked. You see what the other routes of the API show you.
pub struct Query;

/// Everything that can be asked. You see what the other routes of the API show you.
#[Object]
impl Query {
    /// The agents that you may see.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn agents(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Agent>> {
        let request = ListAgents { limit: Some(page::limit(first)?), cursor: after.map(PageCursor::from) };
        let page = Asker::of(context)?.ask(&request).await.map_err(page::cursor_is_after)?;
        page::of::<ListAgents, _, _>(page, Default::default(), |agent| agent.id, Agent::from)
    }

    /// One agent, by name, `group/project:name`, or id.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn agent(&self, context: &Context<'_>, name: String) -> Result<Agent> {
        Asker::of(context)?.ask(&ShowAgent { agent: name }).await.map(Agent::from)
    }

    /// One project, by its full path, id, or external numeric id.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn project(&self, context: &Context<'_>, full_path: String) -> Result<Project> {
        Asker::of(context)?.ask(&ShowProject { project: full_path }).await.map(Project::from)
    }

    /// The environments that you may see.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    #[expect(clippy::too_many_arguments, reason = "they are the field's arguments")]
    async fn environments(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only of this project: full path or id.")] project: Option<String>,
        #[graphql(desc = "Only of this group's projects: name or id.")] group: Option<String>,
        #[graphql(desc = "Only of this tier.")] tier: Option<Tier>,
        #[graphql(desc = "Only with this name, in which `*` stands for any text.")] name: Option<String>,
        #[graphql(desc = "Only in this state.")] state: Option<EnvironmentState>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Environment>> {
        let (tier, state) = (tier.map(Into::into), state.map(Into::into));
        let wanted = ListEnvironments { project, group, tier, name, state, limit: None, cursor: None };
        environment::list(Asker::of(context)?, wanted, first, after).await
    }

    /// One environment.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn environment(&self, context: &Context<'_>, id: ID) -> Result<Environment> {
        environment::one(Asker::of(context)?, &id).await
    }

    /// Each tier that has environments, with how they are doing, the most important first.
    #[graphql(complexity = "limits::ASKING + 5 * child_complexity")]
    async fn tiers(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Only environments of this project: full path or id.")] project: Option<String>,
    ) -> Result<Vec<TierHealth>> {
        let request = ShowTiers { project };
        let tiers = Asker::of(context)?.ask(&request).await?.tiers;
        Ok(tiers.into_iter().map(|tier| TierHealth::of(tier, request.project.as_deref())).collect())
    }

    /// The objects that match, in the order of cluster, kind, namespace and name.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    #[expect(clippy::too_many_arguments, reason = "they are the field's arguments")]
    async fn resources(
        &self,
        context: &Context<'_>,
        filter: Option<ResourceFilter>,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(
            desc = "Judges and relates by what is declared today, and not by what was declared then.",
            default
        )]
        todays_rules: bool,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Resource, ListExtra>> {
        let asker = Asker::of(context)?;
        let at = asker.at(text(at.as_ref())).await?;
        let mut at_least = asker.at_least(position(at_least.as_ref())).await?;
        if let Some(position) = &at_least {
            asker.wait_for(position).await?;
        }
        let extra = ListExtra::before(context, at.as_ref()).await?;
        if let Some(covered) = extra.covered(asker).await? {
            at_least.get_or_insert_default().merge(&covered);
        }
        let request = FindObjects {
            filter: filter.unwrap_or_default().into(),
            at,
            todays_rules,
            at_least,
            limit: Some(page::limit(first)?),
            cursor: after.map(PageCursor::from),
        };
        let page: Page<IndexedObject> = asker.ask(&request).await.map_err(page::cursor_is_after)?;
        let key = |object: &IndexedObject| (object.agent, object.identity.key(), object.uid.clone());
        page::of::<FindObjects, _, _>(page, extra, key, Resource::from)
    }

    /// One object: its body, who wrote it last, and what it is related to. Exactly one matches.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn resource(
        &self,
        context: &Context<'_>,
        filter: ResourceFilter,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(
            desc = "Judges and relates by what is declared today, and not by what was declared then.",
            default
        )]
        todays_rules: bool,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
    ) -> Result<ResourceDetail> {
        let asker = Asker::of(context)?;
        let request =
            ShowIndexed { filter: filter.into(), at: asker.at(text(at.as_ref())).await?, todays_rules };
        let at_least = asker.at_least(position(at_least.as_ref())).await?;
        let detail = asker.ask_covering(&request, at_least.as_ref(), |detail| &detail.as_of).await?;
        ResourceDetail::sealed(asker, detail).await
    }

    /// The objects that match, with what they own, select and use.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn resource_tree(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "The roots.")] filter: ResourceFilter,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(
            desc = "Judges and relates by what is declared today, and not by what was declared then.",
            default
        )]
        todays_rules: bool,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
    ) -> Result<ResourceTree> {
        let asker = Asker::of(context)?;
        let request =
            ShowTree { filter: filter.into(), at: asker.at(text(at.as_ref())).await?, todays_rules };
        let at_least = asker.at_least(position(at_least.as_ref())).await?;
        let tree = asker.ask_covering(&request, at_least.as_ref(), |tree| &tree.as_of).await?;
        let as_of = AsOf::sealed(asker, &tree.as_of).await?;
        let nodes = tree.nodes.into_iter().map(TreeNode::from).collect();
        Ok(ResourceTree { nodes, left_out: tree.left_out, as_of })
    }

    /// Who sends traffic to whom among the objects that match, and the objects beside them.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn network(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Which objects; an environment or a namespace, mostly.")] filter: ResourceFilter,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
    ) -> Result<Network> {
        let asker = Asker::of(context)?;
        let request = ShowNetwork { filter: filter.into(), at: asker.at(text(at.as_ref())).await? };
        let at_least = asker.at_least(position(at_least.as_ref())).await?;
        let network = asker.ask_covering(&request, at_least.as_ref(), |network| &network.as_of).await?;
        Network::sealed(asker, network).await
    }

    /// The changes of the objects that match, the newest first; also of deleted ones.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn resource_history(
        &self,
        context: &Context<'_>,
        filter: ResourceFilter,
        #[graphql(desc = "Judges by what is declared today, and not by what was declared then.", default)]
        todays_rules: bool,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Change, ListExtra>> {
        let (limit, filter) = (page::limit(first)?, filter.into());
        let wanted = Wanted { filter, at_least: None, from: None, to: None, todays_rules, limit, after };
        list_changes(context, at_least, wanted).await
    }

    /// The changes that were recorded between two times, both included, the newest first.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    #[expect(clippy::too_many_arguments, reason = "they are the field's arguments")]
    async fn changes(
        &self,
        context: &Context<'_>,
        filter: Option<ResourceFilter>,
        #[graphql(desc = "The earlier time, or how long ago it was.")] from: Moment,
        #[graphql(desc = "The later time, or how long ago it was; now if not given.")] to: Option<Moment>,
        #[graphql(desc = "Judges by what is declared today, and not by what was declared then.", default)]
        todays_rules: bool,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Change, ListExtra>> {
        let asker = Asker::of(context)?;
        let from = asker.time("from", &from.0)?;
        let to = to.map(|to| asker.time("to", &to.0)).transpose()?;
        if to.is_some_and(|to| to < from) {
            return Err(failure::invalid("to", "is before `from`"));
        }
        let (limit, filter) = (page::limit(first)?, filter.unwrap_or_default().into());
        let wanted = Wanted { filter, at_least: None, from: Some(from), to, todays_rules, limit, after };
        list_changes(context, at_least, wanted).await
    }

    /// What differs of one object between two moments.
    #[graphql(complexity = "3 * limits::ASKING + child_complexity")]
    async fn diff(
        &self,
        context: &Context<'_>,
        filter: ResourceFilter,
        #[graphql(desc = "The earlier moment.")] from: Moment,
        #[graphql(desc = "The later moment; now if not given.")] to: Option<Moment>,
        #[graphql(desc = "Compares the status as well.", default = true)] status: bool,
    ) -> Result<Diff> {
        let asker = Asker::of(context)?;
        let filter: ObjectFilter = filter.into();
        let from = asker.moment("from", &from.0).await?;
        let to = match to {
            Some(to) => Some(asker.moment("to", &to.0).await?),
            None => None,
        };
        let status = if status { Status::Covered } else { Status::Ignored };
        let (from, to) = futures::join!(then(asker, &filter, Some(from)), then(asker, &filter, to));
        compare(asker, from?, to?, status).await
    }

    /// Why the objects that match are as they are: from each down to the one that is to blame.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn why(
        &self,
        context: &Context<'_>,
        filter: ResourceFilter,
        #[graphql(desc = "As of which moment; now if not given.")] at: Option<Moment>,
        #[graphql(
            desc = "Judges and relates by what is declared today, and not by what was declared then.",
            default
        )]
        todays_rules: bool,
        #[graphql(desc = "What the answer has to cover.")] at_least: Option<Position>,
    ) -> Result<Why> {
        let asker = Asker::of(context)?;
        let request =
            ExplainHealth { filter: filter.into(), at: asker.at(text(at.as_ref())).await?, todays_rules };
        let at_least = asker.at_least(position(at_least.as_ref())).await?;
        let explained = asker.ask_covering(&request, at_least.as_ref(), |why| &why.as_of).await?;
        let as_of = AsOf::sealed(asker, &explained.as_of).await?;
        let chain = |chain: Vec<IndexedObject>| ReasonChain {
            resources: chain.into_iter().map(Resource::from).collect(),
        };
        Ok(Why { chains: explained.chains.into_iter().map(chain).collect(), as_of })
    }

    /// Which clusters the index knows, how fresh each is, and which kinds an agent cannot see.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn coverage(&self, context: &Context<'_>) -> Result<Coverage> {
        let asker = Asker::of(context)?;
        let covered = asker.coverage().await?;
        let agents = covered.agents.iter().cloned().map(ClusterCoverage::from).collect();
        Ok(Coverage { agents, as_of: AsOf::sealed(asker, &covered.as_of).await? })
    }

    /// The sources of an agent, or of all agents that you may see.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn sources(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Name, `group/project:name`, or id of an agent.")] agent: Option<String>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Source>> {
        let page = list_sources(context, agent, first, after).await?;
        page::of::<ListSources, _, _>(page, Default::default(), place_of, Source::from)
    }

    /// One source.
    #[graphql(complexity = "limits::ASKING + child_complexity")]
    async fn source(&self, context: &Context<'_>, id: ID) -> Result<Source> {
        let source = id.parse().map_err(|_| failure::invalid("id", "must be the id of a source"))?;
        Asker::of(context)?.ask(&ShowSource { source }).await.map(Source::from)
    }

    /// What you may do in your organization as a whole.
    #[graphql(complexity = "6 * limits::ASKING + 6 * child_complexity")]
    async fn rights(&self, context: &Context<'_>) -> Result<Vec<OrganizationRight>> {
        let asker = Asker::of(context)?;
        let scope = Scope::Organization(asker.context.organization);
        let rights = decided(asker, &OrganizationAction::ALL, scope).await?;
        Ok(rights.into_iter().map(OrganizationRight::from).collect())
    }

    /// The last syncs of a source, the newest first. Without a source the running or last sync of each; one that was never synced is left out
    /// then, so that a page may hold fewer.
    #[graphql(complexity = "limits::page(first, child_complexity)")]
    async fn syncs(
        &self,
        context: &Context<'_>,
        #[graphql(desc = "Id of a source.")] source: Option<ID>,
        #[graphql(desc = "Name, `group/project:name`, or id of an agent, where no source is named.")]
        agent: Option<String>,
        #[graphql(desc = "Items of the page, from 1 to 500; 50 if not given.")] first: Option<u16>,
        #[graphql(desc = "Begins behind this cursor.")] after: Option<String>,
    ) -> Result<Items<Sync>> {
        match source {
            Some(_) if agent.is_some() => {
                Err(failure::invalid("agent", "cannot be given with a source, which has one"))
            }
            Some(source) => syncs_of(context, &source, first, after).await,
            None => last_syncs(context, agent, first, after).await,
        }
    }
}

async fn syncs_of(
    context: &Context<'_>,
    source: &ID,
    first: Option<u16>,
    after: Option<String>,
) -> Result<Items<Sync>> {
    let asker = Asker::of(context)?;
    let source = source.parse().map_err(|_| failure::invalid("source", "must be the id of a source"))?;
    let view = asker.ask(&ShowSource { source }).await?;
    let request = ListSyncs { source, limit: Some(page::limit(first)?), cursor: after.map(PageCursor::from) };
    let syncs = asker.ask(&request).await.map_err(page::cursor_is_after)?;
    let key = |sync: &SourceSync| (sync.decided_at, sync.id);
    page::of::<ListSyncs, _, _>(syncs, Default::default(), key, |sync| Sync::noted(&view, sync))
}

async fn last_syncs(
    context: &Context<'_>,
    agent: Option<String>,
    first: Option<u16>,
    after: Option<String>,
) -> Result<Items<Sync>> {
    let mut page = list_sources(context, agent.clone(), first, after).await?;
    // A page without any would have no place to go on from.
    while let (true, Some(next)) = (page.items.iter().all(|source| source.sync.is_none()), &page.next) {
        page = list_sources(context, agent.clone(), first, Some(next.to_string())).await?;
    }
    page::of_some::<ListSources, _, _>(page, Default::default(), place_of, |source| Sync::of(&source))
}

fn text(moment: Option<&Moment>) -> Option<&str> {
    moment.map(|moment| moment.0.as_str())
}

fn position(position: Option<&Position>) -> Option<&str> {
    position.map(|position| position.0.as_str())
}

fn place_of(source: &SourceView) -> (AgentId, String) {
    (source.agent, source.configuration.name.clone())
}

async fn list_sources(
    context: &Context<'_>,
    agent: Option<String>,
    first: Option<u16>,
    after: Option<String>,
) -> Result<Page<SourceView>> {
    let asker = Asker::of(context)?;
    let agent = match agent {
        Some(agent) => Some(asker.ask(&ShowAgent { agent }).await?.id),
        None => None,
    };
    let request =
        ListSources { agent, limit: Some(page::limit(first)?), cursor: after.map(PageCursor::from) };
    asker.ask(&request).await.map_err(page::cursor_is_after)
}

async fn list_changes(
    context: &Context<'_>,
    at_least: Option<Position>,
    wanted: Wanted,
) -> Result<Items<Change, ListExtra>> {
    let asker = Asker::of(context)?;
    let mut at_least = asker.at_least(position(at_least.as_ref())).await?;
    let extra = ListExtra::before(context, None).await?;
    if let Some(covered) = extra.covered(asker).await? {
        at_least.get_or_insert_default().merge(&covered);
    }
    changes::page(asker, Wanted { at_least, ..wanted }, extra).await.map_err(page::cursor_is_after)
}

/// The object at a moment; `None` where it was not there.
async fn then(asker: &Asker, filter: &ObjectFilter, at: Option<BusMoment>) -> Result<Option<ObjectDetail>> {
    let request = ShowIndexed { filter: filter.clone(), at, todays_rules: false };
    match asker.ask(&request).await {
        Ok(detail) => Ok(Some(detail).filter(|detail| detail.object.gone_at.is_none())),
        Err(error) if failure::is(&error, RefusalKind::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn compare(
    asker: &Asker,
    from: Option<ObjectDetail>,
    to: Option<ObjectDetail>,
    status: Status,
) -> Result<Diff> {
    let body = |detail: &Option<ObjectDetail>| -> Option<Value> {
        detail.as_ref().and_then(|detail| serde_json::from_str(detail.body.as_deref()?).ok())
    };
    let fields = match (&from, &to) {
        (None, None) => return Err(failure::error(&Refusal::not_found("resource"))),
        (Some(_), Some(_)) => match (body(&from), body(&to)) {
            (Some(before), Some(after)) => objects::diff::diff(&before, &after, status),
            _ => {
                let message = "the body is not known for both moments";
                return Err(failure::error(&Refusal::new(RefusalKind::Unavailable, message)));
            }
        },
        _ => Vec::new(),
    };
    let differs = from.is_some() != to.is_some() || !fields.is_empty();
    let (mut sealed_from, mut sealed_to) = (None, None);
    if let Some(detail) = from {
        sealed_from = Some(ResourceDetail::sealed(asker, detail).await?);
    }
    if let Some(detail) = to {
        sealed_to = Some(ResourceDetail::sealed(asker, detail).await?);
    }
    let fields = fields.into_iter().map(Into::into).collect();
    Ok(Diff { differs, from: sealed_from, to: sealed_to, fields })
}
