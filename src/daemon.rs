//! Start and stop, in written order.
