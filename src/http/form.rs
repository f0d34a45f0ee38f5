//! Reads the fields of a JSON object and gathers everything that is wrong with them (A1.4: all at once).
//!
//! A field that is `null` counts as absent. Invariant: a `None` from a reader means that the field is absent or that its fault
//! has been noted, so a caller who finds no fault at the end holds only checked values.

use crate::error::{FieldCode, counted};
use crate::http::json::parse_duration;
use crate::http::problem::{FieldError, Problem};
use crate::model::limits::NAME_BYTES;
use crate::rules::readable::name_fault;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// What is wrong so far.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<FieldError>);

impl Faults {
    /// Notes one of our own codes.
    pub(crate) fn add(&mut self, pointer: impl Into<String>, code: FieldCode, detail: impl Into<String>) {
        self.add_rule(pointer, code.text(), detail);
    }

    /// Notes a code of another closed list, such as the rule that refused a destination.
    pub(crate) fn add_rule(&mut self, pointer: impl Into<String>, code: &'static str, detail: impl Into<String>) {
        self.0.push(FieldError { pointer: pointer.into(), code, detail: detail.into() });
    }

    /// Nothing was wrong, or a 422 that names all of it.
    pub(crate) fn check(self) -> Result<(), Problem> {
        if self.0.is_empty() { Ok(()) } else { Err(Problem::fields(self.0)) }
    }

    /// Whether nothing was wrong so far.
    pub(crate) fn none(&self) -> bool {
        self.0.is_empty()
    }
}

/// A JSON object under reading, with the place where it stands.
#[derive(Debug)]
pub(crate) struct Form<'a> {
    pointer: String,
    fields: &'a Map<String, Value>,
}

impl<'a> Form<'a> {
    /// The whole body, which must be an object.
    pub(crate) fn body(body: &'a Value) -> Result<Self, Problem> {
        Self::at(String::new(), body)
            .ok_or_else(|| Problem::field("", FieldCode::WrongType, "the body must be a JSON object"))
    }

    /// The object at that place.
    pub(crate) fn at(pointer: String, value: &'a Value) -> Option<Self> {
        Some(Self { pointer, fields: value.as_object()? })
    }

    /// The JSON Pointer of a field (RFC 6901).
    pub(crate) fn pointer(&self, name: &str) -> String {
        format!("{}/{}", self.pointer, name.replace('~', "~0").replace('/', "~1"))
    }

    /// All fields.
    pub(crate) fn fields(&self) -> &'a Map<String, Value> {
        self.fields
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// Notes each field that is not known here, and each that may only be read.
    pub(crate) fn only(&self, known: &[&str], read_only: &[&str], faults: &mut Faults) {
        for name in self.fields.keys() {
            if read_only.contains(&name.as_str()) {
                faults.add(self.pointer(name), FieldCode::ReadOnly, "this is shown, and not to be set here");
            } else if !known.contains(&name.as_str()) {
                faults.add(self.pointer(name), FieldCode::UnknownField, "there is no such field here");
            }
        }
    }

    /// Notes a field that is absent.
    pub(crate) fn required(&self, name: &str, faults: &mut Faults) {
        if self.get(name).is_none() {
            faults.add(self.pointer(name), FieldCode::Required, "this field is required");
        }
    }

    /// A text on one line.
    pub(crate) fn text(&self, name: &str, bytes: RangeInclusive<usize>, faults: &mut Faults) -> Option<&'a str> {
        check_text(self.get(name)?, self.pointer(name), bytes, char::is_control, faults)
    }

    /// The field `name`: one line of which a person sees everything. What is stored already is left alone.
    pub(crate) fn name(&self, stored: Option<&str>, faults: &mut Faults) -> Option<&'a str> {
        let text = self.text("name", 1..=NAME_BYTES, faults)?;
        match name_fault(text) {
            Some(fault) if stored != Some(text) => {
                faults.add(self.pointer("name"), FieldCode::InvalidValue, fault);
                None
            }
            Some(_) | None => Some(text),
        }
    }

    /// A text that may have several lines.
    pub(crate) fn prose(&self, name: &str, bytes: RangeInclusive<usize>, faults: &mut Faults) -> Option<&'a str> {
        let banned = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        check_text(self.get(name)?, self.pointer(name), bytes, banned, faults)
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, name: &str, faults: &mut Faults) -> Option<bool> {
        let read = self.get(name)?.as_bool();
        if read.is_none() {
            faults.add(self.pointer(name), FieldCode::WrongType, "this must be true or false");
        }
        read
    }

    /// A whole number.
    pub(crate) fn integer(&self, name: &str, range: RangeInclusive<u64>, faults: &mut Faults) -> Option<u64> {
        let value = self.get(name)?;
        match value.as_u64() {
            Some(number) if range.contains(&number) => Some(number),
            other => {
                let code = if other.is_some() || value.is_i64() { FieldCode::OutOfRange } else { FieldCode::WrongType };
                let detail = format!("this must be a whole number between {} and {}", range.start(), range.end());
                faults.add(self.pointer(name), code, detail);
                None
            }
        }
    }

    /// A duration, in milliseconds.
    pub(crate) fn duration(&self, name: &str, range_ms: RangeInclusive<u64>, faults: &mut Faults) -> Option<u64> {
        check_duration(self.get(name)?, self.pointer(name), range_ms, faults)
    }

    /// One of a closed list of names.
    pub(crate) fn choice<T: Copy, const N: usize>(
        &self,
        name: &str,
        choices: &[(&'static str, T); N],
        faults: &mut Faults,
    ) -> Option<T> {
        let value = self.get(name)?;
        let chosen = value.as_str().and_then(|text| choices.iter().find(|(known, _)| *known == text));
        if chosen.is_none() {
            let names = choices.map(|(known, _)| format!("\"{known}\"")).join(", ");
            faults.add(self.pointer(name), FieldCode::InvalidValue, format!("this must be one of {names}"));
        }
        chosen.map(|(_, choice)| *choice)
    }

    /// An object.
    pub(crate) fn form(&self, name: &str, faults: &mut Faults) -> Option<Form<'a>> {
        let form = Form::at(self.pointer(name), self.get(name)?);
        if form.is_none() {
            faults.add(self.pointer(name), FieldCode::WrongType, "this must be an object");
        }
        form
    }

    /// A list, each item with its pointer.
    pub(crate) fn list(
        &self,
        name: &str,
        items: RangeInclusive<usize>,
        faults: &mut Faults,
    ) -> Option<Vec<(String, &'a Value)>> {
        let Some(list) = self.get(name)?.as_array() else {
            faults.add(self.pointer(name), FieldCode::WrongType, "this must be a list");
            return None;
        };
        check_length(list.len(), self.pointer(name), &items, "item", faults)?;
        Some(list.iter().enumerate().map(|(at, item)| (format!("{}/{at}", self.pointer(name)), item)).collect())
    }

    /// A list of texts on one line.
    pub(crate) fn texts(
        &self,
        name: &str,
        items: RangeInclusive<usize>,
        bytes: RangeInclusive<usize>,
        faults: &mut Faults,
    ) -> Option<Vec<String>> {
        let list = self.list(name, items, faults)?;
        let read = |(pointer, item): (String, &'a Value)| {
            check_text(item, pointer, bytes.clone(), char::is_control, &mut *faults).map(str::to_owned)
        };
        // All of them are read before the first that is wrong ends the list.
        list.into_iter().map(read).collect::<Vec<_>>().into_iter().collect()
    }
}

/// A text with a length and without banned characters.
pub(crate) fn check_text<'a>(
    value: &'a Value,
    pointer: String,
    bytes: RangeInclusive<usize>,
    banned: impl Fn(char) -> bool,
    faults: &mut Faults,
) -> Option<&'a str> {
    let Some(text) = value.as_str() else {
        faults.add(pointer, FieldCode::WrongType, "this must be a text");
        return None;
    };
    if text.chars().any(banned) {
        faults.add(pointer, FieldCode::InvalidValue, "this must not hold control characters");
        return None;
    }
    check_length(text.len(), pointer, &bytes, "byte", faults)?;
    Some(text)
}

/// A duration within a range, in milliseconds.
pub(crate) fn check_duration(
    value: &Value,
    pointer: String,
    range_ms: RangeInclusive<u64>,
    faults: &mut Faults,
) -> Option<u64> {
    let Some(text) = value.as_str() else {
        faults.add(pointer, FieldCode::WrongType, "this must be a duration like \"5s\"");
        return None;
    };
    let Some(ms) = parse_duration(text) else {
        faults.add(pointer, FieldCode::InvalidValue, "this must be a duration like \"5s\", \"30m\" or \"2h\"");
        return None;
    };
    if !range_ms.contains(&ms) {
        let [from, to] = [range_ms.start(), range_ms.end()].map(|ms| crate::http::json::show_duration(*ms));
        faults.add(pointer, FieldCode::OutOfRange, format!("this must be between {from} and {to}"));
        return None;
    }
    Some(ms)
}

fn check_length(
    length: usize,
    pointer: String,
    allowed: &RangeInclusive<usize>,
    unit: &str,
    faults: &mut Faults,
) -> Option<()> {
    if length < *allowed.start() {
        let detail = format!("this must have at least {}", counted(*allowed.start() as u64, unit));
        faults.add(pointer, FieldCode::Empty, detail);
        return None;
    }
    if length > *allowed.end() {
        let detail = format!("this may have at most {}", counted(*allowed.end() as u64, unit));
        faults.add(pointer, FieldCode::TooLong, detail);
        return None;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn faults_of(read: impl FnOnce(&Form<'_>, &mut Faults), body: &Value) -> Vec<(String, &'static str)> {
        let mut faults = Faults::default();
        read(&Form::body(body).unwrap(), &mut faults);
        faults.0.into_iter().map(|fault| (fault.pointer, fault.code)).collect()
    }

    // A1.4
    #[test]
    fn every_fault_is_noted_with_its_pointer() {
        let body = json!({
            "name": "a\nb", "long": "abcdef", "flag": "yes", "count": 1.5, "minus": -1, "big": 300,
            "wait": "5 parsecs", "inner": [1], "a/b~c": 1, "list": [], "enabled": true, "words": [2, "x", 1],
        });
        let found = faults_of(
            |form, faults| {
                assert_eq!(form.text("name", 1..=10, faults), None);
                assert_eq!(form.text("long", 1..=3, faults), None);
                assert_eq!(form.flag("flag", faults), None);
                assert_eq!(form.integer("count", 1..=10, faults), None);
                assert_eq!(form.integer("minus", 1..=10, faults), None);
                assert_eq!(form.integer("big", 1..=256, faults), None);
                assert_eq!(form.duration("wait", 0..=10, faults), None);
                assert!(form.form("inner", faults).is_none());
                assert!(form.list("list", 1..=2, faults).is_none());
                assert!(form.texts("words", 1..=3, 1..=5, faults).is_none());
                form.required("absent", faults);
                let known = ["name", "long", "flag", "count", "minus", "big", "wait", "inner", "list", "words"];
                form.only(&known, &["enabled"], faults);
            },
            &body,
        );
        let wanted = [
            ("/name", "invalid_value"),
            ("/long", "too_long"),
            ("/flag", "wrong_type"),
            ("/count", "wrong_type"),
            ("/minus", "out_of_range"),
            ("/big", "out_of_range"),
            ("/wait", "invalid_value"),
            ("/inner", "wrong_type"),
            ("/list", "empty"),
            ("/words/0", "wrong_type"),
            ("/words/2", "wrong_type"),
            ("/absent", "required"),
            ("/a~1b~0c", "unknown_field"),
            ("/enabled", "read_only"),
        ];
        assert_eq!(found, wanted.map(|(pointer, code)| (pointer.to_owned(), code)));
    }

    // A1.4: words for people, singular where there is one, and with the range that holds.
    #[test]
    fn details_read_well() {
        let body = json!({"name": "", "long": "abc", "list": [], "minus": -1, "half": 1.5, "big": 300});
        let mut faults = Faults::default();
        let form = Form::body(&body).unwrap();
        form.name(None, &mut faults);
        form.text("long", 0..=1, &mut faults);
        form.list("list", 2..=3, &mut faults);
        for name in ["minus", "half", "big"] {
            form.integer(name, 1..=256, &mut faults);
        }
        let said: Vec<_> = faults.0.iter().map(|fault| fault.detail.as_str()).collect();
        let range = "this must be a whole number between 1 and 256";
        let wanted =
            ["this must have at least 1 byte", "this may have at most 1 byte", "this must have at least 2 items"];
        assert_eq!(said, [&wanted[..], &[range; 3]].concat());
    }

    // A1.4: a name of an older build that would be refused today stands in the way of no change.
    #[test]
    fn a_stored_name_is_left_alone() {
        let body = json!({"name": "a\u{202e}b"});
        assert_eq!(faults_of(|form, faults| assert!(form.name(Some("a\u{202e}b"), faults).is_some()), &body), []);
        let refused = [("/name".to_owned(), "invalid_value")];
        assert_eq!(faults_of(|form, faults| assert_eq!(form.name(Some("ab"), faults), None), &body), refused);
        assert_eq!(faults_of(|form, faults| assert_eq!(form.name(None, faults), None), &body), refused);
    }

    #[test]
    fn null_is_absent() {
        let body = json!({"name": null});
        assert_eq!(faults_of(|form, faults| assert_eq!(form.text("name", 1..=3, faults), None), &body), []);
        assert_eq!(faults_of(|form, faults| form.required("name", faults), &body), [("/name".to_owned(), "required")]);
    }
}
