//! Directory, tokens and grants.
