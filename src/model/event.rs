//! An accepted event: the CloudEvents attributes that we carry, and the body's bytes as they came.

use crate::model::ids::EventId;
use bytes::Bytes;

/// An accepted record (C2). All texts have been checked against the limits of C2.3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `ce-id`.
    pub id: EventId,
    /// `ce-tenantid`, the only source of tenant identity.
    pub tenant: Box<str>,
    /// `ce-source`, the producing application (also called the origin).
    pub source: Box<str>,
    /// `ce-resourcetype`.
    pub resource: Box<str>,
    /// `ce-eventtype`.
    pub event: Box<str>,
    /// `ce-time` as it came: RFC 3339.
    pub time: Box<str>,
    /// `ce-schemaversion` as it came.
    pub schema_version: Box<str>,
    /// The MAJOR of the schema version (C2.4).
    pub schema_major: u32,
    /// `ce-subject`.
    pub subject: Option<Box<str>>,
    /// `ce-datacontenttype`, else the plain `content-type`, else `application/json`.
    pub content_type: Box<str>,
    /// `ce-dataschema`.
    pub data_schema: Option<Box<str>>,
    /// W3C `traceparent`.
    pub traceparent: Option<Box<str>>,
    /// W3C `tracestate`.
    pub tracestate: Option<Box<str>>,
    /// Other `ce-*` attributes, names in lower case without the prefix, in order of arrival, 16 at most (C2.6).
    pub extensions: Vec<(Box<str>, Box<str>)>,
    /// The record value, byte for byte (C3.4).
    pub body: Bytes,
}

impl Event {
    /// `<resource>.<event>`, what subscriptions match on (C4.1).
    pub fn event_type(&self) -> String {
        format!("{}.{}", self.resource, self.event)
    }

    /// `studio.lerian.<source>.<resource>.<event>` (C2.2).
    pub fn ce_type(&self) -> String {
        format!("studio.lerian.{}.{}.{}", self.source, self.resource, self.event)
    }
}
