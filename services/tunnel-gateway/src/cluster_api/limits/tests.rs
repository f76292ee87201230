use events::UserId;
use uuid::Uuid;

use super::*;

const NONE: ClusterLimits = ClusterLimits {
    clusters_open_per_user: 0,
    clusters_open_per_agent: 0,
    clusters_open_per_organization: 0,
    clusters_rate_per_user: 0,
    clusters_rate_per_agent: 0,
    clusters_rate_per_organization: 0,
    clusters_bytes_per_user: 0,
    clusters_bytes_per_organization: 0,
};

fn requester(user: u128, agent: u128) -> Requester {
    Requester {
        user: Actor::User(UserId(Uuid::from_u128(user))),
        agent: AgentId(Uuid::from_u128(agent)),
        organization: OrganizationId(Uuid::from_u128(1)),
    }
}

const fn second(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// How many of so many requests at once go through.
fn go_through(limits: &mut Limits, requester: &Requester, requests: u32, now: Duration) -> u32 {
    (0..requests).map(|_| u32::from(limits.enter(requester, now).is_ok())).sum()
}

#[test]
fn a_user_has_only_so_many_open_and_each_that_ends_leaves_a_place() {
    let mut limits = Limits::new(ClusterLimits { clusters_open_per_user: 3, ..NONE });
    assert_eq!(go_through(&mut limits, &requester(1, 1), 2, second(0)), 2);
    assert_eq!(go_through(&mut limits, &requester(1, 2), 2, second(0)), 1, "at whichever agent");
    let exceeded = limits.enter(&requester(1, 2), second(0)).unwrap_err();
    assert_eq!((exceeded.scope, exceeded.kind, exceeded.limit), (LimitScope::User, LimitKind::Open, 3));
    assert_eq!(go_through(&mut limits, &requester(2, 1), 9, second(0)), 3, "another has their own");
    limits.leave(&requester(1, 1));
    assert_eq!(go_through(&mut limits, &requester(1, 2), 9, second(0)), 1);
}

#[test]
fn nobody_holds_more_of_an_agents_places_than_are_free() {
    let mut limits = Limits::new(ClusterLimits { clusters_open_per_agent: 80, ..NONE });
    assert_eq!(go_through(&mut limits, &requester(1, 1), 100, second(0)), 40);
    let exceeded = limits.enter(&requester(1, 1), second(0)).unwrap_err();
    assert_eq!((exceeded.scope, exceeded.kind), (LimitScope::Agent, LimitKind::OpenShare(40)));
    assert_eq!(go_through(&mut limits, &requester(2, 1), 100, second(0)), 20);
    assert_eq!(go_through(&mut limits, &requester(3, 1), 100, second(0)), 10);
    assert_eq!(go_through(&mut limits, &requester(1, 2), 100, second(0)), 40, "another agent has its own");
    for _ in 0..40 {
        limits.leave(&requester(1, 1));
    }
    assert_eq!(go_through(&mut limits, &requester(2, 1), 100, second(0)), 15, "35, another 10, 35 free");
    let others =
        (4..1000).map(|user| go_through(&mut limits, &requester(user, 1), 100, second(0))).sum::<u32>();
    assert_eq!(others + 45, 80, "whoever comes finds one until there is none");
    let exceeded = limits.enter(&requester(2000, 1), second(0)).unwrap_err();
    assert_eq!((exceeded.scope, exceeded.kind, exceeded.limit), (LimitScope::Agent, LimitKind::Open, 80));
}

#[test]
fn an_organization_has_only_so_many_open_too() {
    let mut limits = Limits::new(ClusterLimits { clusters_open_per_organization: 10, ..NONE });
    assert_eq!(go_through(&mut limits, &requester(1, 1), 100, second(0)), 5);
    let exceeded = limits.enter(&requester(1, 2), second(0)).unwrap_err();
    assert_eq!((exceeded.scope, exceeded.kind), (LimitScope::Organization, LimitKind::OpenShare(5)));
    let another = Requester { organization: OrganizationId(Uuid::from_u128(2)), ..requester(2, 1) };
    assert_eq!(go_through(&mut limits, &another, 100, second(0)), 5);
}

#[test]
fn a_burst_goes_through_and_then_so_many_a_second() {
    let mut limits = Limits::new(ClusterLimits { clusters_rate_per_user: 10, ..NONE });
    assert_eq!(go_through(&mut limits, &requester(1, 1), 100, second(0)), 50);
    let exceeded = limits.enter(&requester(1, 1), second(0)).unwrap_err();
    assert_eq!((exceeded.scope, exceeded.kind, exceeded.limit), (LimitScope::User, LimitKind::Rate, 10));
    assert!(exceeded.retry_after < second(1), "{exceeded:?}");
    assert_eq!(
        go_through(&mut limits, &requester(1, 1), 100, exceeded.retry_after + Duration::from_millis(1)),
        1
    );
    assert_eq!(go_through(&mut limits, &requester(2, 1), 100, second(0)), 50, "another has their own");
    let in_ten_minutes: u32 = (2..6002)
        .map(|tenth| go_through(&mut limits, &requester(1, 1), 100, Duration::from_millis(tenth * 100)))
        .sum();
    assert!((5700..=6000).contains(&in_ten_minutes), "{in_ten_minutes}");
    assert_eq!(
        go_through(&mut limits, &requester(1, 1), 100, second(1000)),
        50,
        "no more than a burst is saved up"
    );
}

#[test]
fn who_asks_for_little_goes_on_while_others_ask_for_all_that_an_agent_has() {
    for some in [
        ClusterLimits { clusters_rate_per_user: 10, clusters_rate_per_agent: 40, ..NONE },
        ClusterLimits { clusters_rate_per_user: 10, clusters_rate_per_organization: 40, ..NONE },
    ] {
        let mut limits = Limits::new(some);
        assert_eq!(go_through(&mut limits, &requester(1, 1), 100, second(0)), 50, "alone, all of their own");
        let mut seen = Vec::new();
        for moment in 1..600 {
            let now = Duration::from_millis(moment * 100);
            for user in 1..20 {
                let refused = (0..100).find_map(|_| limits.enter(&requester(user, 1), now).err());
                seen.extend(refused.map(|exceeded| exceeded.kind));
            }
            // Those who came first held more at first; that fades.
            if moment >= 300 && moment % 10 == 0 {
                assert_eq!(go_through(&mut limits, &requester(99, 1), 1, now), 1, "{moment}");
            }
        }
        assert!(seen.contains(&LimitKind::RateShare), "they ask for more than there is");
    }
}

#[test]
fn bytes_over_what_a_user_or_an_organization_may_move_are_waited_for() {
    let some = ClusterLimits { clusters_bytes_per_user: 1000, clusters_bytes_per_organization: 1500, ..NONE };
    let mut limits = Limits::new(some);
    for user in 1..4 {
        limits.enter(&requester(user, 1), second(0)).unwrap();
    }
    assert_eq!(limits.take(&requester(1, 1), 2000, second(0)), Duration::ZERO);
    assert_eq!(limits.take(&requester(1, 1), 500, second(0)), Duration::from_millis(500));
    assert_eq!(limits.take(&requester(2, 1), 500, second(0)), Duration::ZERO, "another has their own");
    assert_eq!(limits.take(&requester(3, 1), 1500, second(0)), second(1), "but only one organization");
    assert_eq!(limits.take(&requester(1, 1), 1, second(60)), Duration::ZERO);
}

#[test]
fn without_limits_everything_goes_through() {
    let mut limits = Limits::new(NONE);
    assert_eq!(go_through(&mut limits, &requester(1, 1), 10_000, second(0)), 10_000);
    assert_eq!(limits.take(&requester(1, 1), usize::MAX, second(0)), Duration::ZERO);
}

#[test]
fn who_asks_for_nothing_any_more_takes_no_memory() {
    let mut limits = Limits::new(ClusterLimits::default());
    let mut most = 0;
    for number in 0..100_000_u64 {
        let requester = requester(u128::from(number), u128::from(number));
        let now = Duration::from_millis(number * 10);
        limits.enter(&requester, now).unwrap();
        limits.take(&requester, 1000, now);
        limits.leave(&requester);
        most = most.max(limits.users.len() + limits.agents.len() + limits.held.len());
    }
    // What fades takes a minute to be as good as nothing: the accounts of so long are there.
    assert!(most <= 40_000, "{most}");
}
