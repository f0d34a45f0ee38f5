//! The OpenAPI 3.1 document: paths from [`ROUTES`], schemas from the types that are answered, codes from the closed lists.
//!
//! It is generated, committed as `data/openapi.json`, and served from there. Invariant: a test generates it again and fails when
//! the two differ, so the document cannot drift from the code.

use crate::error::{Code, FieldCode};
use crate::http::attempt::AttemptShown;
use crate::http::routes::{Access, Op, ROUTES, Route, Takes, Verb};
use crate::http::{
    admin, api_keys, change, create, dead_letters, events, health, ingest, inputs, operator, problem, replays, running,
    shape, spec,
};
use crate::model::limits::{PAGE_ITEMS, PAGE_ITEMS_DEFAULT};
use crate::model::notice::NoticeKind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// The document as it is served.
pub(crate) const DOCUMENT: &str = include_str!("../../data/openapi.json");

/// The document as the code is now.
pub fn generate() -> Value {
    let mut schemas = Schemas::default();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut schemas);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.name().to_ascii_lowercase()] = operation;
    }
    schemas.add::<problem::ProblemShown<'static>>();
    schemas.put("ProblemCode", json!({"type": "string", "enum": texts(Code::ALL.iter().map(|code| code.text()))}));
    schemas.put("FieldErrorCode", json!({
        "type": "string",
        "description": "What is wrong with a field. A refused destination carries the name of the refusing rule instead.",
        "enum": texts(FieldCode::ALL.iter().map(|code| code.text())),
    }));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Streaming Hub",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Brings every business event from Kafka to whoever subscribed.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas.0,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "An API key: shk_<id>_<secret>"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
    })
}

/// The schemas by name.
#[derive(Default)]
struct Schemas(BTreeMap<String, Value>);

impl Schemas {
    /// Adds the schema of a type and of all that it holds; answers a reference to it.
    fn add<T: ToSchema + PartialSchema>(&mut self) -> Value {
        let mut held: Vec<(String, RefOr<Schema>)> = Vec::new();
        T::schemas(&mut held);
        held.push((T::name().into_owned(), T::schema()));
        for (name, schema) in held {
            self.put(&name, json!(schema));
        }
        reference(&T::name())
    }

    fn put(&mut self, name: &str, schema: Value) {
        self.0.entry(name.to_owned()).or_insert(schema);
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn texts<'a>(codes: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    codes.collect()
}

/// What an operation takes and answers beside what its route says.
struct Told {
    query: Vec<Value>,
    request: Option<Value>,
    success: (u16, &'static str, Option<Value>),
    /// Statuses of problems that not every call of its kind has.
    problems: Vec<u16>,
}

fn told(success: u16, says: &'static str, answer: Option<Value>) -> Told {
    Told { query: Vec::new(), request: None, success: (success, says, answer), problems: Vec::new() }
}

fn tell(op: Op, schemas: &mut Schemas) -> Told {
    match op {
        Op::Healthz => told(200, "Alive", Some(json!({"type": "object"}))),
        Op::Readyz => {
            Told { problems: vec![503], ..told(200, "Ready or degraded", Some(schemas.add::<running::Readiness>())) }
        }
        Op::Metrics => told(200, "OpenMetrics text", None),
        Op::OpenApi => told(200, "This document", Some(json!({"type": "object"}))),
        Op::CreateSubscription => {
            let answer = schemas.add::<create::Created<'static>>();
            Told {
                request: Some(input(schemas, Input::Whole)),
                problems: vec![409],
                ..told(201, "Created", Some(answer))
            }
        }
        Op::ListSubscriptions => {
            let item = schemas.add::<shape::SubscriptionShown>();
            Told {
                query: [
                    page_parameters(),
                    vec![
                        parameter("enabled", json!({"type": "boolean"})),
                        parameter("verification_state", json!({"type": "string", "enum": ["pending", "active"]})),
                        parameter("sink", json!({"type": "string", "enum": ["webhook"]})),
                        parameter("health", json!({"type": "string", "enum": ["healthy", "unhealthy"]})),
                    ],
                ]
                .concat(),
                ..told(200, "A page", Some(page_of(item)))
            }
        }
        Op::GetSubscription => told(200, "The subscription", Some(schemas.add::<health::WithHealth>())),
        Op::PatchSubscription => {
            let plain = schemas.add::<shape::Changed>();
            let probed = schemas.add::<change::Verified>();
            let answer = json!({"anyOf": [plain, probed]});
            let request = Some(input(schemas, Input::Patch));
            Told { request, problems: vec![409, 412], ..told(200, "Changed", Some(answer)) }
        }
        Op::DeleteSubscription => Told { problems: vec![412], ..told(204, "Gone", None) },
        Op::VerifySubscription => {
            let answer = schemas.add::<change::Verified>();
            Told { problems: vec![409, 412], ..told(200, "What the probe saw", Some(answer)) }
        }
        Op::RotateSecret => {
            let answer = schemas.add::<change::Rotated<'static>>();
            let request = json!({
                "type": "object",
                "properties": {"expire_old_now": {"type": "boolean", "description": "End the former secret at once."}},
                "additionalProperties": false,
            });
            Told { request: Some(request), problems: vec![409, 412], ..told(200, "The new secret", Some(answer)) }
        }
        Op::PauseSubscription | Op::ResumeSubscription => {
            let answer = schemas.add::<shape::Changed>();
            Told { problems: vec![409, 412], ..told(200, "The subscription", Some(answer)) }
        }
        Op::TestSubscription => {
            let answer = schemas.add::<change::Tested>();
            Told { problems: vec![409], ..told(200, "The attempt", Some(answer)) }
        }
        Op::ListDeadLettersOf => {
            let item = schemas.add::<dead_letters::DeadLetterShown>();
            let query = [page_parameters(), vec![reason_parameter()]].concat();
            Told { query, ..told(200, "A page", Some(page_of(item))) }
        }
        Op::GetDeadLetter => told(200, "The dead letter", Some(schemas.add::<dead_letters::DeadLetterShown>())),
        Op::RedriveDeadLetter => told(200, "Sent again", Some(schemas.add::<dead_letters::RedrivenShown>())),
        Op::PurgeDeadLetter => told(204, "Gone", None),
        Op::RedriveDeadLettersOf | Op::PurgeDeadLettersOf => {
            let answer = schemas.add::<replays::BegunShown>();
            let request = Some(inputs::letters_input());
            Told { request, problems: vec![409, 412], ..told(202, "How many; listed as a replay", Some(answer)) }
        }
        Op::StartReplay => {
            let answer = schemas.add::<replays::BegunShown>();
            let request = Some(inputs::replay_input());
            Told { request, problems: vec![409, 412], ..told(202, "How many", Some(answer)) }
        }
        Op::ListReplays => {
            let item = schemas.add::<replays::ReplayShown>();
            Told { query: page_parameters(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::CancelReplay => told(204, "Cancelled, or ended before", None),
        Op::GetEvent => {
            schemas.add::<AttemptShown>();
            told(200, "The event", Some(schemas.add::<events::EventShown>()))
        }
        Op::ListPoison => {
            let item = schemas.add::<admin::PoisonShown>();
            Told { query: page_parameters(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::ListGaps => {
            let item = schemas.add::<admin::GapShown>();
            Told { query: page_parameters(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::ShowIngest => told(200, "Each partition", Some(schemas.add::<admin::IngestShown>())),
        Op::ListDeadLetters => {
            let item = schemas.add::<dead_letters::DeadLetterShown>();
            let text = json!({"type": "string"});
            let own =
                vec![reason_parameter(), parameter("tenant_id", text.clone()), parameter("subscription_id", text)];
            Told { query: [page_parameters(), own].concat(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::RedriveDeadLetters => {
            let answer = schemas.add::<dead_letters::RedrivenShown>();
            Told {
                request: Some(inputs::redrive_input()),
                problems: vec![404, 409],
                ..told(200, "How many", Some(answer))
            }
        }
        Op::ListNotices => {
            let item = schemas.add::<operator::NoticeShown>();
            let kinds = texts(NoticeKind::ALL.iter().map(|kind| kind.code()));
            let kind = parameter("kind", json!({"type": "string", "enum": kinds}));
            Told { query: [page_parameters(), vec![kind]].concat(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::ListBreakers => {
            let item = schemas.add::<operator::OpenBreakerShown>();
            Told { query: page_parameters(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::ListAllSubscriptions => {
            let item = schemas.add::<operator::OfTenantShown>();
            let own = vec![
                parameter("tenant_id", json!({"type": "string"})),
                parameter("health", json!({"type": "string", "enum": ["healthy", "unhealthy"]})),
            ];
            Told { query: [page_parameters(), own].concat(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::ListApiKeys => {
            let item = schemas.add::<api_keys::ApiKeyShown>();
            Told { query: page_parameters(), ..told(200, "A page", Some(page_of(item))) }
        }
        Op::CreateApiKey => {
            let answer = schemas.add::<api_keys::CreatedKey<'static>>();
            Told { request: Some(inputs::key_input()), problems: vec![409], ..told(201, "Created", Some(answer)) }
        }
        Op::RevokeApiKey => told(204, "Revoked", None),
        Op::IngestEvent => {
            let answer = schemas.add::<ingest::IngestedShown>();
            let data = json!({"description": "The event's data; its attributes are the ce-* headers."});
            Told { request: Some(data), ..told(202, "Stored, or dropped", Some(answer)) }
        }
    }
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let told = tell(route.op, schemas);
    let mut parameters = told.query;
    for name in route.path.split(['{', '}']).skip(1).step_by(2) {
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    }
    if route.access == Access::Tenant {
        let text = "The tenant that the call is about, for an operator of a multi-tenant hub.";
        parameters.push(header_parameter("X-Tenant-Id", text));
    }
    if told.problems.contains(&412) {
        parameters.push(header_parameter("If-Match", "The `ETag` that was read; a stale one is refused with 412."));
    }
    if route.verb == Verb::Post && route.takes != Takes::Event {
        let text = "The first answer is repeated to the same API key for 24 h.";
        parameters.push(header_parameter("Idempotency-Key", text));
    }
    let mut operation = json!({
        "operationId": route.op.name(),
        "summary": route.op.summary(),
        "tags": [route.op.tag()],
        "parameters": parameters,
        "responses": responses(route, told.success, &told.problems),
        "security": security(route.access),
    });
    if let Some(schema) = told.request.or_else(|| empty_request(route.takes)) {
        let required = route.takes != Takes::OptionalJson && route.takes != Takes::Event;
        operation["requestBody"] =
            json!({"required": required, "content": {media_type(route.takes): {"schema": schema}}});
    }
    operation
}

fn responses(route: &Route, (status, says, answer): (u16, &str, Option<Value>), own: &[u16]) -> Value {
    let mut responses = json!({});
    let request_id = json!({"X-Request-Id": {"schema": {"type": "string"}}});
    responses[status.to_string()] = json!({"description": says, "headers": request_id});
    if let Some(schema) = answer {
        responses[status.to_string()]["content"] = json!({"application/json": {"schema": schema}});
    }
    let mut problems = own.to_vec();
    problems.extend(match route.access {
        Access::Open => &[][..],
        Access::Metrics | Access::Admin | Access::Operator | Access::Ingest => &[401, 403],
        Access::Tenant => &[400, 401, 403, 404],
    });
    if route.path.contains('{') {
        problems.push(404);
    }
    problems.extend(match route.takes {
        Takes::Nothing => &[][..],
        Takes::Json | Takes::OptionalJson | Takes::MergePatch | Takes::Event => &[400, 408, 413, 415, 422],
    });
    for status in problems {
        let title = Code::ALL.iter().find(|code| code.status() == status).map_or("", |code| code.title());
        let problem = json!({"application/problem+json": {"schema": reference("Problem")}});
        responses[status.to_string()] = json!({"description": title, "content": problem});
    }
    let any = json!({"application/problem+json": {"schema": reference("Problem")}});
    responses["default"] = json!({"description": "Any other failure", "content": any});
    responses
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        Access::Metrics => json!([{}, {"bearer": []}, {"apiKey": []}]),
        Access::Tenant | Access::Admin | Access::Operator | Access::Ingest => json!([{"bearer": []}, {"apiKey": []}]),
    }
}

fn media_type(takes: Takes) -> &'static str {
    match takes {
        Takes::Nothing | Takes::Json | Takes::OptionalJson => "application/json",
        Takes::MergePatch => "application/merge-patch+json",
        Takes::Event => "*/*",
    }
}

fn empty_request(takes: Takes) -> Option<Value> {
    (takes == Takes::OptionalJson).then(|| json!({"type": "object", "additionalProperties": false}))
}

fn parameter(name: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "schema": schema})
}

fn header_parameter(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "header", "schema": {"type": "string"}, "description": description})
}

fn page_parameters() -> Vec<Value> {
    let limit = json!({"type": "integer", "minimum": 1, "maximum": PAGE_ITEMS, "default": PAGE_ITEMS_DEFAULT});
    vec![parameter("limit", limit), parameter("cursor", json!({"type": "string"}))]
}

fn reason_parameter() -> Value {
    parameter("reason", json!({"type": "string", "enum": texts(dead_letters::REASONS.iter().map(|(name, _)| *name))}))
}

fn page_of(item: Value) -> Value {
    json!({
        "type": "object",
        "required": ["items", "next_cursor"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next_cursor": {"type": ["string", "null"], "description": "For the next page; null on the last."},
        },
    })
}

/// Whether a subscription is sent whole or as a patch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Whole,
    Patch,
}

/// What may be sent is what is shown, without what may only be read.
fn input(schemas: &mut Schemas, which: Input) -> Value {
    schemas.add::<shape::SubscriptionShown>();
    schemas.put("WebhookSinkInput", sink_input());
    let shown = schemas.0.get("Subscription").cloned().unwrap_or_default();
    let mut properties: Map<String, Value> = Map::new();
    for name in spec::FIELDS {
        properties.insert(name.to_owned(), shown["properties"][name].clone());
    }
    properties.insert("sink".to_owned(), reference("WebhookSinkInput"));
    let probe = "Probe the destination at once; in a patch, before anything goes there.";
    properties.insert("verify".to_owned(), json!({"type": "boolean", "description": probe}));
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    let name = match which {
        Input::Whole => {
            schema["required"] = json!(["event_types", "sink"]);
            "SubscriptionInput"
        }
        Input::Patch => {
            schema["description"] = json!("A merge patch (RFC 7396): null removes, objects merge, all else replaces.");
            "SubscriptionPatch"
        }
    };
    schemas.put(name, schema);
    reference(name)
}

fn sink_input() -> Value {
    json!({
        "type": "object",
        "required": ["kind", "url"],
        "properties": {
            "kind": {"type": "string", "enum": ["webhook"]},
            "url": {"type": "string", "format": "uri"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "timeout": {"type": ["string", "null"], "example": "10s"},
            "signature_format": reference("SignatureFormat"),
            "client_certificate": {
                "type": ["object", "null"],
                "properties": {"certificate_pem": {"type": "string"}, "private_key_pem": {"type": "string", "writeOnly": true}},
            },
        },
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: &str = "UPDATE_OPENAPI=1 cargo test --lib openapi";

    #[test]
    fn the_committed_document_is_that_of_the_code() {
        let generated = format!("{:#}\n", generate());
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/openapi.json"), &generated).unwrap();
            return;
        }
        assert!(generated == DOCUMENT, "data/openapi.json is not what the code says; run: {COMMAND}");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = generate();
        let text = document.to_string();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for part in text.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
    }

    // A1.9: what the document says may be sent is what is read.
    #[test]
    fn the_document_names_every_field_that_is_read() {
        let document = generate();
        let shown = document["components"]["schemas"]["Subscription"]["properties"].as_object().unwrap();
        let read_only = spec::READ_ONLY.iter().filter(|name| **name != "health");
        let mut known: Vec<&str> = spec::FIELDS.iter().chain(read_only).copied().collect();
        known.sort_unstable();
        assert_eq!(shown.keys().map(String::as_str).collect::<Vec<_>>(), known);
    }
}
