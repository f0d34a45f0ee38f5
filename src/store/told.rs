//! Verbs about what operators are told: failures of subscriptions, and notices.

use super::tables::Table;
use super::txn::Txn;
use super::{StoreError, key};
use crate::model::ids::SubNo;
use crate::model::notice::Notice;
use bincode::{Decode, Encode};

impl Txn<'_> {
    /// Writes what a subscription's failures have come to; none where there is nothing to remember (C8.2).
    pub fn set_health<H: Encode>(&mut self, sub: SubNo, row: Option<&H>) -> Result<(), StoreError> {
        match row {
            Some(row) => self.put(Table::Health, &key::sub(sub), row),
            None => self.remove(Table::Health, &key::sub(sub)).map(drop),
        }
    }

    /// What is remembered of every subscription that fails.
    pub fn health<H: Decode<()>>(&mut self) -> Result<Vec<(SubNo, H)>, StoreError> {
        self.all(Table::Health, |key| key::read_u32(key).map(SubNo))
    }

    /// Writes a notice.
    pub fn put_notice(&mut self, no: u64, notice: &Notice) -> Result<(), StoreError> {
        self.put(Table::Notice, &key::number(no), notice)
    }

    /// Removes a notice.
    pub fn remove_notice(&mut self, no: u64) -> Result<(), StoreError> {
        self.remove(Table::Notice, &key::number(no)).map(drop)
    }

    /// Every notice, oldest first.
    pub fn notices(&mut self) -> Result<Vec<(u64, Notice)>, StoreError> {
        self.all(Table::Notice, key::read_number)
    }
}
