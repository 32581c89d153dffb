//! Essential tasks: when one of them ends, the process exits, so that its supervisor restarts it.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::error;

/// Starts essential tasks, and reports those that end before the broker drains.
#[derive(Debug)]
pub(super) struct Essentials {
    tasks: TaskTracker,
    draining: CancellationToken,
    ended: (mpsc::UnboundedSender<&'static str>, mpsc::UnboundedReceiver<&'static str>),
}

impl Essentials {
    pub(super) fn new(tasks: TaskTracker, draining: CancellationToken) -> Self {
        Self { tasks, draining, ended: mpsc::unbounded_channel() }
    }

    /// Runs `task` until the broker drains.
    pub(super) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let end = EndReport { name, draining: self.draining.clone(), ended: self.ended.0.clone() };
        let task = self.draining.clone().run_until_cancelled_owned(task);
        self.tasks.spawn(async move {
            let _end = end;
            task.await;
        });
    }

    /// Waits for a task that returned or panicked, and returns its name. Pending while the broker drains.
    pub(super) async fn ended(&mut self) -> &'static str {
        match self.ended.1.recv().await {
            Some(name) => name,
            // Not reached: `self` holds a sender.
            None => std::future::pending().await,
        }
    }
}

/// Reports the end of its task when dropped, also after a panic.
struct EndReport {
    name: &'static str,
    draining: CancellationToken,
    ended: mpsc::UnboundedSender<&'static str>,
}

impl Drop for EndReport {
    fn drop(&mut self) {
        if !self.draining.is_cancelled() {
            error!(task = self.name, "an essential task has ended");
            // Without a receiver, the broker has ended.
            let _unheard = self.ended.send(self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn essentials() -> (Essentials, TaskTracker, CancellationToken) {
        let (tasks, draining) = (TaskTracker::new(), CancellationToken::new());
        (Essentials::new(tasks.clone(), draining.clone()), tasks, draining)
    }

    #[tokio::test]
    async fn a_task_that_returns_or_panics_is_reported_by_name() {
        let (mut essentials, _tasks, _draining) = essentials();
        essentials.spawn("goes on", std::future::pending());
        essentials.spawn("returns", std::future::ready(()));
        assert_eq!(essentials.ended().await, "returns");
        essentials.spawn("panics", async { panic!("on purpose") });
        assert_eq!(essentials.ended().await, "panics");
    }

    #[tokio::test]
    async fn the_end_of_the_broker_is_not_a_failure() {
        let (mut essentials, tasks, draining) = essentials();
        essentials.spawn("goes on", std::future::pending());
        draining.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(essentials.ended.1.try_recv().is_err());
    }
}
