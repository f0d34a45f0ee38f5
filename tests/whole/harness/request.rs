//! One request of HTTP/1.1 read out of a buffer, with the headers that a receiver of deliveries looks at.
//!
//! By hand, since the receiver shares two cores with what is measured, and must cost next to nothing.

/// The most headers that a delivery has.
const HEADERS: usize = 64;

/// A request that has come in whole.
#[derive(Debug, Default)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) event: &'a str,
    pub(super) delivery: &'a str,
    pub(super) tenant: &'a str,
    pub(super) attempt: &'a str,
    pub(super) seq: &'a str,
    pub(super) timestamp: &'a str,
    /// Two while a rotated secret still signs.
    pub(super) signatures: [&'a str; 2],
    pub(super) body: &'a [u8],
    /// How many bytes of the buffer it took.
    pub(super) length: usize,
}

impl<'a> Request<'a> {
    /// The request at the beginning of the buffer; none while it is not all there.
    pub(super) fn read(buffer: &'a [u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        let head = match parsed.parse(buffer).expect("the hub sends well-formed requests") {
            httparse::Status::Complete(head) => head,
            httparse::Status::Partial => return None,
        };
        let mut request = Request { method: parsed.method.unwrap(), path: parsed.path.unwrap(), ..Request::default() };
        let mut body_length = 0;
        for header in parsed.headers.iter() {
            let value = std::str::from_utf8(header.value).expect("header values are text");
            let name = header.name;
            let place = match name.len() {
                12 if is(name, "x-lerian-seq") => &mut request.seq,
                14 if is(name, "content-length") => {
                    body_length = value.parse().unwrap();
                    continue;
                }
                16 if is(name, "x-lerian-attempt") => &mut request.attempt,
                17 if is(name, "x-lerian-event-id") => &mut request.event,
                18 if is(name, "x-lerian-tenant-id") => &mut request.tenant,
                19 if is(name, "x-webhook-timestamp") => &mut request.timestamp,
                19 if is(name, "x-webhook-signature") && request.signatures[0].is_empty() => &mut request.signatures[0],
                19 if is(name, "x-webhook-signature") => &mut request.signatures[1],
                20 if is(name, "x-lerian-delivery-id") => &mut request.delivery,
                17 if is(name, "transfer-encoding") => panic!("the hub knows the length of what it sends"),
                _ => continue,
            };
            *place = value;
        }
        request.length = head + body_length;
        request.body = buffer.get(head..request.length)?;
        Some(request)
    }
}

fn is(name: &str, wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted)
}
