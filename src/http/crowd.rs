//! Who is connected: a fixed number of places, and who gives one up when all are taken (A1.9).
//!
//! Invariant: never more than that number hold a place, and nobody with a request in progress is sent away. Of the others that
//! one goes that has rested longest, of the peer that holds most places: one peer alone cannot keep all others out.

use crate::http::watch::Watch;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// The connections of one listener.
pub(crate) struct Crowd {
    places: usize,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    last: u64,
    members: BTreeMap<u64, Member>,
}

struct Member {
    peer: IpAddr,
    watch: Arc<Watch>,
    leave: CancellationToken,
}

/// A place; free again when it is dropped.
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    /// What its connection does.
    pub(crate) watch: Arc<Watch>,
    /// Its connection must end: somebody else has the place now.
    pub(crate) leave: CancellationToken,
}

impl Crowd {
    /// With so many places.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self { places, now: Mutex::default() })
    }

    /// A place, if need be that of another one; none when everybody has a request in progress.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, watch: Arc<Watch>) -> Option<Place> {
        let mut now = self.now();
        if now.members.len() >= self.places && !now.send_one_away() {
            return None;
        }
        now.last += 1;
        let (number, leave) = (now.last, CancellationToken::new());
        let member = Member { peer: network(peer), watch: watch.clone(), leave: leave.clone() };
        now.members.insert(number, member);
        Some(Place { crowd: self.clone(), number, watch, leave })
    }

    /// Sends one away that rests; whether there was one.
    pub(crate) fn make_room(&self) -> bool {
        self.now().send_one_away()
    }

    // Each change is one insertion or removal: a thread that panicked leaves it whole.
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Now {
    fn send_one_away(&mut self) -> bool {
        let mut held: HashMap<IpAddr, usize> = HashMap::new();
        for member in self.members.values() {
            *held.entry(member.peer).or_default() += 1;
        }
        let resting = self.members.iter().filter_map(|(number, member)| {
            let rested_since = member.watch.rests_since()?;
            let places = held.get(&member.peer).copied().unwrap_or_default();
            Some((std::cmp::Reverse(places), rested_since, *number))
        });
        let Some((_, _, number)) = resting.min() else { return false };
        if let Some(member) = self.members.remove(&number) {
            member.leave.cancel();
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.now().members.remove(&self.number);
    }
}

/// Who counts as one peer: an address, or the network of 64 bits that one IPv6 subscriber has.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::watch::tests::Still;
    use http::Version;

    struct Door {
        clock: Arc<Still>,
        crowd: Arc<Crowd>,
    }

    impl Door {
        fn new(places: usize) -> Self {
            Self { clock: Arc::default(), crowd: Crowd::new(places) }
        }

        /// A second later, that peer.
        fn enter(&self, peer: &str) -> Option<Place> {
            self.clock.after(1);
            self.crowd.enter(peer.parse().unwrap(), Watch::new(self.clock.clone()))
        }
    }

    fn gone(places: &[Place]) -> Vec<bool> {
        places.iter().map(|place| place.leave.is_cancelled()).collect()
    }

    // A1.9
    #[test]
    fn who_rested_longest_makes_room() {
        let door = Door::new(3);
        let mut places: Vec<_> = (0..3).map(|_| door.enter("10.0.0.1").unwrap()).collect();
        assert_eq!(gone(&places), [false; 3]);
        places.push(door.enter("10.0.0.1").unwrap());
        assert_eq!(gone(&places), [true, false, false, false]);
        drop(places.remove(1));
        places.push(door.enter("10.0.0.1").unwrap());
        assert_eq!(gone(&places), [true, false, false, false], "a place was free");
    }

    // A1.9: one peer that takes all places loses them to the others.
    #[test]
    fn the_peer_with_most_places_makes_room() {
        let door = Door::new(4);
        let places = ["10.0.0.9", "2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|peer| door.enter(peer).unwrap());
        let more: Vec<_> = ["10.0.0.8", "::ffff:10.0.0.9"].map(|peer| door.enter(peer).unwrap()).into();
        assert_eq!(gone(&places), [false, true, true, false]);
        // Two of 10.0.0.9 now.
        let last = door.enter("10.0.0.7").unwrap();
        assert_eq!((gone(&places), gone(&more)), (vec![true, true, true, false], vec![false, false]));
        drop(last);
    }

    // A1.9
    #[test]
    fn a_request_in_progress_is_never_sent_away() {
        let door = Door::new(2);
        let places = [door.enter("10.0.0.1").unwrap(), door.enter("10.0.0.1").unwrap()];
        let busy: Vec<_> = places.iter().map(|place| place.watch.head_came(Version::HTTP_11)).collect();
        assert!(door.enter("10.0.0.2").is_none());
        assert!(!door.crowd.make_room());
        drop(busy);
        assert!(door.crowd.make_room());
        assert_eq!(gone(&places), [true, false]);
    }
}
