//! What goes wrong on the way to clusters' APIs, and that nobody else notices.

mod canary;
mod flat;
mod front;
mod gateways;
mod going_on;
mod gone;
mod misbehaving;
mod readers;
mod soak;
mod stage;
