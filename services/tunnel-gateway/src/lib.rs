//! Carries desired state to agents and observations to the log.
