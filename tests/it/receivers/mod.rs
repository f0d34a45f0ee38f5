//! Receivers of webhooks on loopback, and what is needed to deliver to them.
//!
//! * [`hub`]: sinks, subscriptions, events and a scripted resolver;
//! * [`https`]: honest receivers, HTTP/1.1 and HTTP/2, plain and under TLS, that record what reached them;
//! * [`script`]: receivers on bare sockets that do what a line of text says.

pub(crate) mod https;
pub(crate) mod hub;
pub(crate) mod script;
