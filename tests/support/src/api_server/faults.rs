//! What goes wrong with API servers, on demand.

use std::sync::mpsc;

use super::resource::Collection;
use super::{ApiServer, State, lock};

/// What a proxy in trouble answers in the server's place.
pub(super) const GARBAGE: &str = "<html><body>upstream connect error or disconnect</body></html>";

/// What running answers react to. The counters only ever grow.
#[derive(Clone, Debug, Default)]
pub(super) struct Signals {
    pub(super) changes: u64,
    pub(super) expirations: u64,
    pub(super) garbage: bool,
    pub(super) hanging: bool,
    pub(super) flood: Option<Flood>,
}

/// An answer to a LIST that costs who reads it more than it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Blanks without an end.
    Blanks,
    /// A list whose items never end.
    Items,
    /// 256 MiB of blanks in 256 KiB of gzip.
    Bomb,
    /// Pages of a few items, each of which names a next one. Their items have new names each time.
    Pages,
    /// Pages without items, each of which names a next one.
    EmptyPages,
    /// A page without items that names itself as the next one.
    SamePage,
    /// To a WATCH: a line without an end.
    Line,
}

/// What only the accept loop can do. It answers when it is done.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) what: What,
    pub(super) done: mpsc::Sender<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Cut,
    GoAway,
    ComeBack,
}

impl ApiServer {
    /// Makes every revision that was ever handed out too old to start from. As a real server does, it answers 410 to
    /// the next page of a list, and 200 to a watch whose only event is an `ERROR` of code 410. Running watches keep
    /// their place.
    pub fn compact(&self) {
        lock(&self.state.store).compact(false);
    }

    /// As [`ApiServer::compact`], but a watch is answered 410 too. The API's documents allow it, and servers behind
    /// an aggregator do it; kube's `watcher` repeats the same revision until it is replaced.
    pub fn compact_by_status(&self) {
        lock(&self.state.store).compact(true);
    }

    /// Ends every running watch with an `ERROR` event of code 410.
    pub fn expire_watches(&self) {
        self.state.signals.send_modify(|signals| signals.expirations += 1);
    }

    /// Resets every open connection. When it returns, none of them is left, nor is their watch counted.
    pub fn cut_connections(&self) {
        self.order(What::Cut);
    }

    /// Waits until one watch of `collection` is running, and resets every open connection. A client that is still between
    /// its list and its watch would only connect again to watch, and notice nothing.
    pub async fn cut_the_watch(&self, collection: Collection) {
        self.until_watched(collection, 1).await;
        self.cut_connections();
    }

    /// Stops listening and resets every open connection: from now on connects are refused.
    pub fn go_away(&self) {
        self.order(What::GoAway);
    }

    /// Listens again on the same port.
    pub fn come_back(&self) {
        self.order(What::ComeBack);
    }

    /// Answers every LIST and WATCH with 200 and something that is not JSON, until [`ApiServer::mend`]. Running watches
    /// get it as their last line.
    pub fn send_garbage(&self) {
        self.state.signals.send_modify(|signals| signals.garbage = true);
    }

    /// Accepts connections and reads requests, but answers none, and sends nothing on running watches, until
    /// [`ApiServer::mend`]; then it answers those whose clients are still there.
    pub fn hang(&self) {
        self.state.signals.send_modify(|signals| signals.hanging = true);
    }

    /// Answers each LIST (or, with [`Flood::Line`], each WATCH) so, until [`ApiServer::mend`].
    pub fn flood(&self, flood: Flood) {
        self.state.signals.send_modify(|signals| signals.flood = Some(flood));
    }

    /// Ends [`ApiServer::send_garbage`], [`ApiServer::hang`] and [`ApiServer::flood`].
    pub fn mend(&self) {
        self.state.signals.send_modify(|signals| {
            signals.garbage = false;
            signals.hanging = false;
            signals.flood = None;
        });
    }

    /// Answers 403 to requests of `token` for `collection`, until [`ApiServer::permit`].
    pub fn forbid(&self, token: &str, collection: Collection) {
        lock(&self.state.forbidden).insert((token.to_owned(), collection));
    }

    /// Takes back [`ApiServer::forbid`].
    pub fn permit(&self, token: &str, collection: Collection) {
        lock(&self.state.forbidden).remove(&(token.to_owned(), collection));
    }

    fn order(&self, what: What) {
        let (done, until_done) = mpsc::channel();
        self.orders.send(Order { what, done }).expect("the accept loop runs as long as its server");
        until_done.recv().expect("the accept loop obeys");
    }
}

impl State {
    pub(super) async fn until_answering(&self) {
        let mut signals = self.signals.subscribe();
        // The sender lives in this very state.
        drop(signals.wait_for(|signals| !signals.hanging).await);
    }

    /// Wakes the watches. After the store's lock is released, or they would only wait for it.
    pub(super) fn tell_watches(&self) {
        self.signals.send_modify(|signals| signals.changes += 1);
    }
}
