//! Stored keys and values of an older or damaged form (C13.6): said to be damaged, or read as they are written.
//!
//! The input: a byte for the table, and the value; the same bytes are read as keys, as a sealed secret, and as a time.

use super::{take, tenant};
use streaming_hub::model::subscription::Sealed;
use streaming_hub::rules::autodisable::Health;
use streaming_hub::rules::breaker::Breaker;
use streaming_hub::secrets::Scope;
use streaming_hub::store::StoreError;
use streaming_hub::store::doors::{name, rekey, rewrite, subscription};
use streaming_hub::time::Timestamp;

pub(super) fn run(mut data: &[u8]) {
    let [table] = take(&mut data);
    let table = usize::from(table);
    match rewrite::<Breaker, Health>(table, data) {
        Ok(written) => {
            let again = rewrite::<Breaker, Health>(table, &written);
            assert!(again.is_ok_and(|again| again == written), "{}: what is written is read as it is", name(table));
            assert!(written.len() <= data.len(), "{}: of two spellings the shorter one is written", name(table));
        }
        Err(StoreError::Damaged(_)) => {}
        Err(other) => panic!("{}: {other}", name(table)),
    }
    if let Ok(subscription) = subscription(data) {
        // Whatever it says, it can be shown, and a patch is read over it.
        let shown = tenant().shown(&subscription);
        assert!(shown.is_object());
        tenant().patch(&subscription, b"{}");
    }
    for key in rekey(data) {
        assert_eq!(key, data, "a key has one spelling");
    }
    let scope = Scope { tenant: "acme", owner: "sub", field: "field" };
    assert!(tenant().envelope.open(scope, &Sealed(data.to_vec())).is_err(), "nobody sealed this");
    let at = Timestamp(u64::from_be_bytes(take(&mut data)));
    let shown = at.to_string();
    if let Some(read) = Timestamp::parse(&shown) {
        assert!(read == at || shown == "9999-12-31T23:59:59.999Z", "{shown}");
    }
}
