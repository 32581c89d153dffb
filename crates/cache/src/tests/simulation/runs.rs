//! Checks every start of a run: it has a cause and is within the limits of its issuer.

use std::time::Duration;

use super::{
    keys::{Content, KeyModel, Reading, RequestKind},
    model::Model,
    plugins::{IssuerMode, secs},
};

/// A queued run is abandoned if there is no request for its key in this time.
const ABANDONED: Duration = Duration::from_secs(60);
/// The cache checks all keys once a second.
pub(super) const LOOK: Duration = Duration::from_secs(2);

impl Model {
    pub(super) fn judge_start(&mut self, index: usize, now: Reading) {
        self.judge_slots(index, now);
        self.judge_pace(index, now);
        self.judge_turn(index, now);
        let key = &self.keys[index];
        if !key.detached.is_empty() || matches!(key.content, Content::Unsure) {
            return;
        }
        if key.is_running() {
            return self.broken(|| format!("two runs of key {index} at a time"));
        }
        if !is_used(key, now) && now.awake > self.jumped + LOOK {
            return self.broken(|| format!("a run of key {index}, which is not used"));
        }
        if !self.catalog.plugins[key.plugin].asks_persons() {
            self.judge_cause(index, now);
        }
    }

    fn judge_cause(&mut self, index: usize, now: Reading) {
        let key = &self.keys[index];
        let version = self.catalog.plugins[key.plugin].file.version();
        let waited = key.back_off_since.map(|failed| now.boot.saturating_sub(failed));
        // A user at a terminal does not wait for the end of the back-off.
        let backs_off = waited.is_some_and(|waited| waited < secs(1)) && key.user_asked < key.back_off_since;
        let held = key.held(now);
        let suspected = key.suspected.reason.is_some_and(|at| at >= key.ended);
        let is_due = held.is_none_or(|held| held.has_passed(held.due_in.0, now) || held.version != version);
        let is_short = held.is_some_and(|held| key.is_short(held, now));
        // After a step back, an expired or due credential is valid again.
        let was_due = held.is_some_and(|held| held.landed.boot <= self.stepped_back);
        if key.refresh_asked || was_due || (is_due || is_short) && !backs_off {
            return;
        }
        if !suspected {
            let left = held.map(|held| held.left(now));
            return self.broken(|| {
                format!("a run of key {index} without a cause: {left:?} left, failed {waited:?} ago")
            });
        }
        let known = &mut self.keys[index].suspected;
        known.runs += 1;
        known.reason = None;
        let since = now.boot.saturating_sub(known.first.unwrap_or(now.boot));
        let runs = known.runs;
        if u64::from(runs) > 1 + since.as_secs() / 10 {
            self.broken(|| format!("{runs} runs for rejections of key {index} in {since:?}"));
        }
    }

    /// Checks rate, concurrency and pauses of the issuer.
    fn judge_pace(&mut self, index: usize, now: Reading) {
        let issuer = self.keys[index].issuer;
        let limits = self.catalog.issuer(issuer);
        let (rate, concurrency) = (limits.runs_per_second.get(), limits.concurrency.get());
        let known = &mut self.issuers[issuer];
        let left = known.paused_until.saturating_sub(now.boot);
        // A refresh runs each of its keys, also in a pause.
        let is_forced = self.keys[index].refresh_asked || self.keys[index].refreshes > 0;
        if left > Duration::ZERO && known.is_active() && !is_forced {
            known.probes += 1;
            // The pause may have begun before, with a run that the model does not count.
            let allowed = 1 + now.boot.saturating_sub(known.paused_since).as_secs() / 15;
            if known.probes > allowed {
                return self.broken(|| {
                    format!("a run of key {index} in a pause of issuer {issuer}, {left:?} before its end")
                });
            }
        }
        while known.starts.front().is_some_and(|start| *start + secs(1) <= now.boot) {
            known.starts.pop_front();
        }
        known.starts.push_back(now.boot);
        let (starts, running) = (known.starts.len(), known.running);
        if starts > rate {
            self.broken(|| format!("{starts} runs of issuer {issuer} in a second; {rate} are allowed"));
        }
        // A run that waits for a user does not count.
        let asks_persons = self.catalog.plugins[self.keys[index].plugin].asks_persons();
        if running >= concurrency && !asks_persons && self.limited < now.awake {
            self.broken(|| {
                format!("{} runs of issuer {issuer} at a time; {concurrency} are allowed", running + 1)
            });
        }
    }

    /// There are no more runs at a time than slots. A run that waits for a user has none.
    fn judge_slots(&mut self, index: usize, now: Reading) {
        let (taken, slots) = (self.started.without_persons(), self.slots);
        let asks_persons = self.catalog.plugins[self.keys[index].plugin].asks_persons();
        if taken >= slots && !asks_persons && self.limited < now.awake {
            self.broken(|| format!("{} runs at a time; {slots} are allowed", taken + 1));
        }
    }

    /// Runs with a waiting caller start before background runs.
    fn judge_turn(&mut self, index: usize, now: Reading) {
        let key = &self.keys[index];
        let timeout = self.catalog.plugins[key.plugin].provider().timeout;
        let urgent = key.held(now).is_none_or(|held| held.left(now) < (2 * timeout).max(held.lifetime / 10));
        let left_now = self.limited == now.awake
            || key.last_left.1 == now.awake
            || key.evicted == now.awake
            || self.jumped == now.awake;
        if urgent || left_now || key.refresh_asked || key.is_waited_for() {
            return;
        }
        let overtaken = self.keys.iter().position(|other| {
            let waits = other
                .waiting
                .values()
                .any(|waiting| waiting.kind == RequestKind::Get && waiting.cold && waiting.since < now.awake);
            waits
                && other.issuer == key.issuer
                && self.is_entitled(other, now)
                && other.running.is_empty()
                && other.detached.is_empty()
                && other.evicted.max(other.ended) < now.awake
        });
        if let Some(other) = overtaken {
            self.broken(|| format!("a refresh of key {index} before a caller that waits for key {other}"));
        }
    }

    /// The longest time that runs for all keys of a healthy `issuer` take.
    pub(super) fn bound(&self, issuer: usize) -> Duration {
        if self.scene.is_crowded {
            let one_by_one: Duration = self.keys.iter().map(|key| self.issuers[key.issuer].takes).sum();
            return secs(10) + 2 * one_by_one;
        }
        let (limits, takes) = (self.catalog.issuer(issuer), self.issuers[issuer].takes);
        let count = |count: usize| u32::try_from(count).unwrap();
        let (rate, concurrency) = (count(limits.runs_per_second.get()), count(limits.concurrency.get()));
        let each = (takes / concurrency).max(secs(1) / rate);
        let keys = count(self.keys.iter().filter(|key| key.issuer == issuer).count());
        secs(3) + takes + each * keys * 3 / 2
    }

    /// Whether `issuer` has worked long enough that all its keys must have a credential.
    pub(super) fn is_healthy(&self, issuer: usize, time: Duration, now: Reading) -> bool {
        let known = &self.issuers[issuer];
        known.mode == IssuerMode::Healthy
            && now.awake >= known.healthy_since.saturating_add(time)
            && now.boot >= known.paused_at_most + secs(30) + time
            && now.boot >= known.disturbed_until.saturating_add(time)
    }
}

/// Whether a run of it is needed.
fn is_used(key: &KeyModel, now: Reading) -> bool {
    let lifetime = match key.content {
        Content::Held(held) => held.lifetime,
        Content::Nothing | Content::Unsure => Duration::ZERO,
    };
    let recent = |(boot, awake): (Duration, Duration)| {
        now.boot.saturating_sub(boot) <= lifetime.max(ABANDONED) + LOOK
            || now.awake.saturating_sub(awake) <= LOOK
    };
    !key.watches.is_empty()
        || !key.waiting.is_empty()
        || key.prewarms > 0
        || key.refreshes > 0
        || key.refresh_asked
        || recent(key.last_used)
        || now.awake.saturating_sub(key.last_left.1) <= LOOK
        || now.boot.saturating_sub(key.last_left.0) <= ABANDONED + LOOK && key.held(now).is_none()
}
