//! What a record's headers say, by name: the attributes that we know, and the extensions.
//!
//! What counts of a header is its last appearance; a null value is an absent header; names compare without case (C2.6).
//! An earlier appearance is as if it had never been sent: it is not even judged.

use crate::model::limits::{EXTENSION_NAME_BYTES, EXTENSIONS};
use crate::model::record::{RawRecord, Reason};
use crate::rules::classify::Policy;

/// The headers we know, each as its last appearance left it, and all others that begin like a context attribute.
#[derive(Default)]
pub(super) struct Found<'a> {
    pub(super) specversion: Option<&'a [u8]>,
    pub(super) id: Option<&'a [u8]>,
    pub(super) source: Option<&'a [u8]>,
    pub(super) kind: Option<&'a [u8]>,
    pub(super) time: Option<&'a [u8]>,
    pub(super) schemaversion: Option<&'a [u8]>,
    pub(super) resourcetype: Option<&'a [u8]>,
    pub(super) eventtype: Option<&'a [u8]>,
    pub(super) tenantid: Option<&'a [u8]>,
    pub(super) subject: Option<&'a [u8]>,
    pub(super) datacontenttype: Option<&'a [u8]>,
    pub(super) dataschema: Option<&'a [u8]>,
    pub(super) systemevent: Option<&'a [u8]>,
    pub(super) content_type: Option<&'a [u8]>,
    pub(super) traceparent: Option<&'a [u8]>,
    pub(super) tracestate: Option<&'a [u8]>,
    others: Vec<Other<'a>>,
}

/// A context attribute that we do not know: name and value.
type Other<'a> = (&'a [u8], Option<&'a [u8]>);

impl<'a> Found<'a> {
    pub(super) fn by_name(policy: &Policy, record: &'a RawRecord) -> Self {
        let mut found = Self::default();
        for (name, value) in &record.headers {
            let value = value.as_deref();
            match context_attribute(policy, name) {
                Some(attribute) => match found.attribute(attribute) {
                    Some(slot) => *slot = value,
                    None => found.others.push((attribute, value)),
                },
                None => {
                    if let Some(slot) = found.plain(name) {
                        *slot = value;
                    }
                }
            }
        }
        found
    }

    fn attribute(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        let (known, slot) = match name.len() {
            2 => ("id", &mut self.id),
            4 if matches!(name[1], b'i' | b'I') => ("time", &mut self.time),
            4 => ("type", &mut self.kind),
            6 => ("source", &mut self.source),
            7 => ("subject", &mut self.subject),
            8 => ("tenantid", &mut self.tenantid),
            9 => ("eventtype", &mut self.eventtype),
            10 => ("dataschema", &mut self.dataschema),
            11 if matches!(name[1], b'p' | b'P') => ("specversion", &mut self.specversion),
            11 => ("systemevent", &mut self.systemevent),
            12 => ("resourcetype", &mut self.resourcetype),
            13 => ("schemaversion", &mut self.schemaversion),
            15 => ("datacontenttype", &mut self.datacontenttype),
            _ => return None,
        };
        name.eq_ignore_ascii_case(known.as_bytes()).then_some(slot)
    }

    fn plain(&mut self, name: &[u8]) -> Option<&mut Option<&'a [u8]>> {
        let (known, slot) = match name.len() {
            10 => ("tracestate", &mut self.tracestate),
            11 => ("traceparent", &mut self.traceparent),
            12 => ("content-type", &mut self.content_type),
            _ => return None,
        };
        name.eq_ignore_ascii_case(known.as_bytes()).then_some(slot)
    }
}

/// The name behind the prefix of a context attribute.
fn context_attribute<'a>(policy: &Policy, name: &'a [u8]) -> Option<&'a [u8]> {
    match name {
        [b'c' | b'C', b'e' | b'E', b'-', attribute @ ..] => Some(attribute),
        [b'c' | b'C', b'e' | b'E', b'_', attribute @ ..] if policy.accept_ce_underscore => Some(attribute),
        _ => None,
    }
}

/// The extensions that are carried: the last value of each name, in the order in which the names first came, 16 at most
/// (C2.6).
pub(super) fn extensions<'a>(found: &Found<'a>) -> Result<Vec<(Box<str>, &'a str)>, Reason> {
    if found.others.is_empty() {
        return Ok(Vec::new());
    }
    let mut carried = Vec::new();
    for (name, value) in last_of_each(&found.others) {
        // An absent header is not read, whatever its name.
        let Some(value) = utf8(value)? else { continue };
        let name = std::str::from_utf8(name).map_err(|_| Reason::HeaderNotUtf8)?;
        if carried.len() < EXTENSIONS && is_carried_name(name) {
            carried.push((name.to_ascii_lowercase().into_boxed_str(), value));
        }
    }
    Ok(carried)
}

/// One entry a name. By sorting, since a hostile record may have as many headers as fit its batch.
fn last_of_each<'a>(found: &[Other<'a>]) -> Vec<Other<'a>> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    let folded = |at: usize| found[at].0.iter().map(u8::to_ascii_lowercase);
    order.sort_by(|&a, &b| folded(a).cmp(folded(b)).then(a.cmp(&b)));
    let mut firsts: Vec<(usize, usize)> = order
        .chunk_by(|&a, &b| found[a].0.eq_ignore_ascii_case(found[b].0))
        .filter_map(|same| Some((*same.first()?, *same.last()?)))
        .collect();
    firsts.sort_unstable();
    firsts.into_iter().map(|(first, last)| (found[first].0, found[last].1)).collect()
}

/// A name that every sink can carry, in a header too.
fn is_carried_name(name: &str) -> bool {
    (1..=EXTENSION_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// The text of a value, which must be UTF-8 where it is read.
pub(super) fn utf8(value: Option<&[u8]>) -> Result<Option<&str>, Reason> {
    value.map(std::str::from_utf8).transpose().map_err(|_| Reason::HeaderNotUtf8)
}
