//! What the gateway asks about many agents at once.

use events::desired::DesiredPlan;
use events::requests::authz::{Admission, Admit};
use events::requests::delivery::ShowDesired;
use events::{AgentId, Refusal, Sha256};

use crate::together::AboutMany;

/// Whose tokens those are that are shown at the door.
impl AboutMany for Admit {
    type One = Sha256;
    type Answer = Admission;
    const MOST: usize = Self::MOST;

    fn about(hashes: Vec<Sha256>) -> Self {
        Self { hashes }
    }

    fn answers(admissions: Vec<Admission>) -> Vec<Admission> {
        admissions
    }

    fn unanswered(refusal: Refusal) -> Admission {
        Admission::Refused(refusal)
    }
}

/// What agents are to have.
impl AboutMany for ShowDesired {
    type One = AgentId;
    type Answer = Result<Option<DesiredPlan>, Refusal>;
    const MOST: usize = Self::MOST;

    fn about(agents: Vec<AgentId>) -> Self {
        Self { agents }
    }

    fn answers(plans: Vec<Option<DesiredPlan>>) -> Vec<Self::Answer> {
        plans.into_iter().map(Ok).collect()
    }

    fn unanswered(refusal: Refusal) -> Self::Answer {
        Err(refusal)
    }
}
