//! What each agent is to have, and its syncs.
