//! The projects whose environments are listed: one, a group's, or all, as far as the caller may see them.

use std::collections::VecDeque;

use bus::ask;
use events::directory::Scope;
use events::request::RequestContext;
use events::requests::authz::{Action, ListAllowedProjects};
use events::requests::environments::ListEnvironments;
use events::{GroupId, ProjectId, Refusal};

use super::environments::unknown_project;
use super::{decide_on, own_context};
use crate::driver::EnvironmentDriver;

/// Projects in the order of their ids, asked for as they are needed.
pub(super) struct ListedProjects<'d> {
    driver: &'d EnvironmentDriver,
    context: RequestContext,
    wanted: ListAllowedProjects,
    group: Option<GroupId>,
    known: VecDeque<ProjectId>,
    are_all_known: bool,
}

impl<'d> ListedProjects<'d> {
    pub(super) async fn of(
        driver: &'d EnvironmentDriver,
        context: &RequestContext,
        request: &ListEnvironments,
        after: Option<&(ProjectId, String)>,
    ) -> Result<Self, Refusal> {
        let from = after.map(|(project, _)| *project);
        let (actor, organization) = (context.actor.clone(), context.organization);
        let action = Action::ReadEnvironment;
        let mut listed = Self {
            driver,
            context: own_context(context),
            wanted: ListAllowedProjects { actor, organization, action, from },
            group: None,
            known: VecDeque::new(),
            are_all_known: request.project.is_some(),
        };
        if let Some(text) = &request.group {
            listed.group = Some(visible_group(driver, context, text).await?);
        }
        if let Some(text) = &request.project {
            let project = driver.visible_project(context, text).await?;
            driver.allowed_on(context, project, action, &unknown_project(text)).await?;
            if from.is_none_or(|from| project >= from) {
                listed.known.push_back(project);
            }
        }
        Ok(listed)
    }

    pub(super) async fn next(&mut self) -> Result<Option<ProjectId>, Refusal> {
        loop {
            if self.known.is_empty() && !self.are_all_known {
                self.known = ask(&*self.driver.deps.bus, &self.context, &self.wanted).await?.into();
                let following = self.known.back().and_then(|last| last.0.as_u128().checked_add(1));
                self.wanted.from = following.map(|id| ProjectId(uuid::Uuid::from_u128(id)));
                self.are_all_known = following.is_none() || self.known.len() < ListAllowedProjects::MOST;
            }
            let Some(project) = self.known.pop_front() else { return Ok(None) };
            let group = self.group;
            let is_wanted =
                self.driver.fold.read(|state| group.is_none() || state.group_of(project) == group);
            if is_wanted {
                return Ok(Some(project));
            }
        }
    }
}

/// The group that a text means, where the caller may know of it.
async fn visible_group(
    driver: &EnvironmentDriver,
    context: &RequestContext,
    text: &str,
) -> Result<GroupId, Refusal> {
    let unknown =
        || Refusal { field: Some("group".to_owned()), ..Refusal::not_found(format!("group {text:?}")) };
    let group = driver.fold.read(|state| state.group(context.organization, text)).ok_or_else(unknown)?;
    let decision = decide_on(&*driver.deps.bus, context, Scope::Group(group), Action::ReadProject).await?;
    if decision.visible { Ok(group) } else { Err(unknown()) }
}
