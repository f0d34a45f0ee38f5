//! Query parameters, pages and cursors (A1.6).
//!
//! A cursor says after which row the next page starts, and of which list. It carries a checksum, so that a bent one is refused
//! instead of read as another place; it grants nothing, since every list looks only under its own tenant.

use crate::error::FieldCode;
use crate::http::form::Faults;
use crate::http::problem::Problem;
use crate::model::limits::{PAGE_ITEMS, PAGE_ITEMS_DEFAULT};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

/// Which list a cursor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum List {
    /// Subscriptions of a tenant.
    Subscriptions = 1,
    /// API keys.
    ApiKeys = 2,
    /// Poison records.
    Poison = 3,
    /// Gaps.
    Gaps = 4,
    /// Dead letters of all.
    DeadLetters = 5,
    /// Dead letters of one subscription.
    DeadLettersOf = 6,
    /// Replays of one subscription.
    Replays = 7,
    /// Notices.
    Notices = 20,
    /// Breakers that are not closed.
    Breakers = 21,
    /// Subscriptions of all tenants.
    OfTenants = 22,
}

/// What part of a list is wanted. The key is the bytes of the last row of the page before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page<const N: usize> {
    /// Items at most.
    pub(crate) limit: usize,
    /// After this row.
    pub(crate) after: Option<[u8; N]>,
}

/// The same of a list whose keys have no fixed length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageOfAny {
    /// Items at most.
    pub(crate) limit: usize,
    /// After this row.
    pub(crate) after: Option<Vec<u8>>,
}

/// A page as it is answered.
#[derive(Debug, Serialize)]
pub(crate) struct Listed<T> {
    /// The items.
    pub(crate) items: Vec<T>,
    /// For the next page; null on the last.
    pub(crate) next_cursor: Option<String>,
}

impl Query {
    /// Reads the query of a URL.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Notes parameters that are not known here, or that come twice.
    pub(crate) fn only(&self, known: &[&str], faults: &mut Faults) {
        for (at, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                faults.add(format!("?{name}"), FieldCode::UnknownField, "there is no such parameter here");
            } else if self.0[..at].iter().any(|(earlier, _)| earlier == name) {
                faults.add(format!("?{name}"), FieldCode::Duplicate, "this parameter may come only once");
            }
        }
    }

    /// A parameter's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A parameter that `read` understands.
    pub(crate) fn read<T>(
        &self,
        name: &str,
        wanted: &str,
        faults: &mut Faults,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = read(self.get(name)?);
        if value.is_none() {
            faults.add(format!("?{name}"), FieldCode::InvalidValue, format!("this must be {wanted}"));
        }
        value
    }

    /// `limit` and `cursor`.
    pub(crate) fn page<const N: usize>(&self, list: List, faults: &mut Faults) -> Result<Page<N>, Problem> {
        let PageOfAny { limit, after } = self.page_of_any(list, faults)?;
        let after = after.map(|key| key.try_into().map_err(|_| Problem::bad_cursor())).transpose()?;
        Ok(Page { limit, after })
    }

    /// The same, where keys are of any length.
    pub(crate) fn page_of_any(&self, list: List, faults: &mut Faults) -> Result<PageOfAny, Problem> {
        let limit = self.get("limit").map_or(Some(PAGE_ITEMS_DEFAULT), |text| {
            let limit = text.parse().ok().filter(|limit| (1..=PAGE_ITEMS).contains(limit));
            if limit.is_none() {
                let detail = format!("this must be a number between 1 and {PAGE_ITEMS}");
                faults.add("?limit", FieldCode::OutOfRange, detail);
            }
            limit
        });
        let after =
            self.get("cursor").map(|text| read_cursor(list, text).ok_or_else(Problem::bad_cursor)).transpose()?;
        Ok(PageOfAny { limit: limit.unwrap_or(PAGE_ITEMS_DEFAULT), after })
    }
}

/// A cursor behind the row with that key.
pub(crate) fn cursor(list: List, key: &[u8]) -> String {
    let mut bytes = vec![list as u8];
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read_cursor(list: List, text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (covered, sum) = bytes.split_last_chunk::<4>()?;
    let [kind, key @ ..] = covered else { return None };
    if *sum != crc32c::crc32c(covered).to_be_bytes() || *kind != list as u8 {
        return None;
    }
    Some(key.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(query: &str) -> Result<Page<8>, &'static str> {
        let mut faults = Faults::default();
        let page = Query::parse(Some(query)).page(List::Poison, &mut faults).map_err(|problem| problem.code())?;
        faults.check().map(|()| page).map_err(|problem| problem.code())
    }

    // A1.6
    #[test]
    fn pages_are_bounded_and_cursors_are_ours() {
        let good = cursor(List::Poison, &7u64.to_be_bytes());
        let other_list = cursor(List::Gaps, &7u64.to_be_bytes());
        let other_length = cursor(List::Poison, &[7; 16]);
        assert_eq!(page(""), Ok(Page { limit: 50, after: None }));
        assert_eq!(page("limit=1"), Ok(Page { limit: 1, after: None }));
        assert_eq!(page(&format!("limit=200&cursor={good}")), Ok(Page { limit: 200, after: Some(7u64.to_be_bytes()) }));
        for limit in ["0", "201", "-1", "1.0", "x", "", "99999999999999999999"] {
            assert_eq!(page(&format!("limit={limit}")), Err("invalid"), "{limit}");
        }
        for cursor in ["", "x", "AAAA", "%00", &other_list, &other_length, &good[1..], &format!("{good}A")] {
            assert_eq!(page(&format!("cursor={cursor}")), Err("bad_request"), "{cursor}");
        }
    }

    // A1.6: any bent bit is seen.
    #[test]
    fn a_bent_cursor_is_refused() {
        let good = URL_SAFE_NO_PAD.decode(cursor(List::Poison, &7u64.to_be_bytes())).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bent = good.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(page(&format!("cursor={}", URL_SAFE_NO_PAD.encode(&bent))), Err("bad_request"), "bit {bit}");
        }
    }

    // A1.9
    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        for (query, fine) in [("limit=1", true), ("limit=1&limit=2", false), ("limits=1", false), ("", true)] {
            let mut faults = Faults::default();
            Query::parse(Some(query)).only(&["limit", "cursor"], &mut faults);
            assert_eq!(faults.none(), fine, "{query}");
        }
    }
}
