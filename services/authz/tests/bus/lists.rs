//! Lists over the bus, page by page.

use std::fmt::Debug;

use events::directory::{Role, Scope};
use events::requests::authz::{Action, CreateCredential, DeleteAgent};
use events::requests::authz::{
    CreateGroup, CreateUser, DeleteGroup, IssueToken, ListAgents, ListAllowedAgents, ListCredentials,
    ListGroups, ListOrganizations, ListProjects, ListTokens, ListUsers, RegisterAgent, ShowUser,
};
use events::requests::page::{PageCursor, PageLimit, Paged};
use events::{AgentId, RefusalKind};

use crate::running::{Person, Running, project};

fn of(items: usize) -> Option<PageLimit> {
    PageLimit::new(items)
}

/// All items, by pages of so many; each page but the last is full.
async fn pages<R>(running: &Running, person: &Person, request: R, items: usize) -> Vec<R::Item>
where
    R: Paged<Item: Debug> + Clone,
{
    assert_eq!(request.limit().items(), items);
    let (mut all, mut next) = (Vec::new(), Some(request.clone()));
    while let Some(asked) = next.take() {
        let page = running.ask(person, &asked).await.unwrap();
        assert!(page.items.len() == items || page.next.is_none(), "{page:?}");
        all.extend(page.items);
        next = page.next.map(|cursor| request.clone().at(cursor));
    }
    all
}

async fn group(running: &Running, owner: &Person, name: &str) {
    running.ask(owner, &CreateGroup { name: name.to_owned() }).await.unwrap();
}

#[tokio::test]
async fn every_list_comes_in_pages_with_each_item_once() {
    let running = Running::start().await;
    let owner = running.owner().await;
    for number in 0..5 {
        let path = format!("group-{number}/project");
        running.ask(&owner, &project(&path, "https://git.example/a.git")).await.unwrap();
        let register = RegisterAgent { name: format!("agent-{number}"), project: path.clone(), group: None };
        running.ask(&owner, &register).await.unwrap();
        let credential = CreateCredential {
            name: format!("credential-{number}"),
            host: "git.example".to_owned(),
            user: None,
            secret: "s".to_owned(),
        };
        running.ask(&owner, &credential).await.unwrap();
        running.user(&owner, &format!("user-{number}"), Role::Viewer).await;
        let issue = IssueToken {
            agent: None,
            user: None,
            name: format!("token-{number}"),
            lifetime_seconds: None,
            clusters_only: false,
        };
        running.ask(&owner, &issue).await.unwrap();
    }
    running.stranger(&owner).await;
    let expected = |what: &str| (0..5).map(|number| format!("{what}-{number}")).collect::<Vec<_>>();
    let (limit, cursor) = (of(2), None::<PageCursor>);

    let groups = pages(&running, &owner, ListGroups { limit, cursor: cursor.clone() }, 2).await;
    assert_eq!(groups.into_iter().map(|view| view.name).collect::<Vec<_>>(), expected("group"));
    let projects = pages(&running, &owner, ListProjects { limit, cursor: cursor.clone() }, 2).await;
    let paths: Vec<_> = projects.into_iter().map(|view| view.path.replace("/project", "")).collect();
    assert_eq!(paths, expected("group"));
    let agents = pages(&running, &owner, ListAgents { limit, cursor: cursor.clone() }, 2).await;
    assert_eq!(agents.iter().map(|view| view.name.clone()).collect::<Vec<_>>(), expected("agent"));
    let credentials = pages(&running, &owner, ListCredentials { limit, cursor: cursor.clone() }, 2).await;
    assert_eq!(credentials.into_iter().map(|view| view.name).collect::<Vec<_>>(), expected("credential"));
    let users = pages(&running, &owner, ListUsers { limit, cursor: cursor.clone() }, 2).await;
    let names: Vec<_> = users.into_iter().filter_map(|view| view.name).collect();
    assert_eq!(names, [vec!["owner".to_owned()], expected("user")].concat());
    let tokens = ListTokens { limit, ..ListTokens::default() };
    let tokens: Vec<_> = pages(&running, &owner, tokens, 2).await.into_iter().map(|view| view.name).collect();
    assert_eq!(tokens, [vec!["owner-token".to_owned()], expected("token")].concat());
    let organizations = ListOrganizations { limit: of(1), cursor };
    assert_eq!(pages(&running, &owner, organizations, 1).await.len(), 2, "the operator's view");

    let found = running.ask(&owner, &ShowUser { user: "user-3".to_owned() }).await.unwrap();
    assert_eq!(found.name.as_deref(), Some("user-3"));
    let context = bus::context_for_service(&running.world, "test", owner.principal.organization);
    let mut allowed = ListAllowedAgents {
        actor: owner.principal.actor.clone(),
        organization: owner.principal.organization,
        action: Action::ReadAgent,
        from: None,
    };
    let ids: Vec<AgentId> = agents.iter().map(|view| view.id).collect();
    assert_eq!(bus::ask(&*running.bus, &context, &allowed).await.unwrap(), ids);
    allowed.from = Some(ids[3]);
    assert_eq!(bus::ask(&*running.bus, &context, &allowed).await.unwrap(), ids[3..]);
    running.stop().await;
}

#[tokio::test]
async fn what_comes_and_goes_between_pages_moves_nothing_else() {
    let mut running = Running::start().await;
    let owner = running.owner().await;
    for name in ["a", "b", "c", "d", "e"] {
        group(&running, &owner, name).await;
    }
    let names = |items: &[events::requests::authz::GroupView]| {
        items.iter().map(|view| view.name.clone()).collect::<Vec<_>>()
    };
    // They come by their ids, and those of one millisecond are in no order.
    let all = names(&running.ask(&owner, &ListGroups { limit: of(9), cursor: None }).await.unwrap().items);
    let request = ListGroups { limit: of(2), cursor: None };
    let first = running.ask(&owner, &request).await.unwrap();
    assert_eq!(names(&first.items), all[..2]);
    // One that was listed, the one that the cursor names, and one to come.
    for gone in [0, 1, 3] {
        running.ask(&owner, &DeleteGroup { group: all[gone].clone() }).await.unwrap();
    }
    group(&running, &owner, "f").await;
    running.restart().await;
    let second = running.ask(&owner, &request.clone().at(first.next.unwrap())).await.unwrap();
    let third = running.ask(&owner, &request.at(second.next.unwrap())).await.unwrap();
    assert_eq!((second.items.len(), third.items.len(), third.next), (2, 1, None));
    let rest = [names(&second.items), names(&third.items)].concat();
    let (new, old): (Vec<_>, Vec<_>) = rest.into_iter().partition(|name| name == "f");
    assert_eq!((new.len(), old), (1, vec![all[2].clone(), all[4].clone()]));
    running.stop().await;
}

#[tokio::test]
async fn a_page_holds_and_counts_only_what_the_caller_may_see() {
    let running = Running::start().await;
    let owner = running.owner().await;
    let mut agents = Vec::new();
    for number in 0..6 {
        let path = format!("group-{number}/project");
        running.ask(&owner, &project(&path, "https://git.example/a.git")).await.unwrap();
        let register = RegisterAgent { name: format!("agent-{number}"), project: path, group: None };
        agents.push(running.ask(&owner, &register).await.unwrap().agent.id);
    }
    for agent in [agents[2], agents[4]] {
        let scope = Some(Scope::Agent(agent));
        let create = CreateUser { name: format!("of-{agent}"), role: Role::Viewer, scope };
        running.ask(&owner, &create).await.unwrap();
    }
    let viewer = running.user_of(&owner, &format!("of-{}", agents[4])).await;
    let request = ListAgents { limit: of(1), cursor: None };
    let only = running.ask(&viewer, &request).await.unwrap();
    assert_eq!(
        (only.items.len(), &only.next),
        (1, &None),
        "the page reaches it over all others, and nothing is behind it"
    );
    assert_eq!(only.items[0].id, agents[4]);
    // A cursor of somebody who sees more begins at its place, and shows no more than this one may see.
    let of_owner = running.ask(&owner, &request).await.unwrap().next.unwrap();
    let seen = running.ask(&viewer, &request.clone().at(of_owner)).await.unwrap();
    assert_eq!(seen, only);
    running.ask(&owner, &DeleteAgent { agent: agents[4].to_string() }).await.unwrap();
    assert!(running.ask(&viewer, &request).await.unwrap().items.is_empty());
    running.stop().await;
}

#[tokio::test]
async fn a_cursor_of_another_list_is_refused_by_its_field() {
    let running = Running::start().await;
    let owner = running.owner().await;
    group(&running, &owner, "a").await;
    group(&running, &owner, "b").await;
    let of_groups = running.ask(&owner, &ListGroups { limit: of(1), cursor: None }).await.unwrap().next;
    for cursor in [of_groups, Some(PageCursor::from("nonsense".to_owned()))] {
        let wrong = running.ask(&owner, &ListUsers { limit: None, cursor }).await.unwrap_err();
        assert_eq!((wrong.kind, wrong.field.as_deref()), (RefusalKind::Invalid, Some("cursor")));
    }
    running.stop().await;
}
