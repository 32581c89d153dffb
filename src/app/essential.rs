//! Tasks without which a broker must not go on: where one ends, the process does, and its supervisor starts it again.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::error;

/// Starts essential tasks and notices the first that ends although the broker does not drain.
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
        let end = End { name, draining: self.draining.clone(), ended: self.ended.0.clone() };
        let task = self.draining.clone().run_until_cancelled_owned(task);
        self.tasks.spawn(async move {
            let _end = end;
            task.await;
        });
    }

    /// The name of a task that returned or panicked. Pending as long as all of them run, and while the broker drains.
    pub(super) async fn ended(&mut self) -> &'static str {
        match self.ended.1.recv().await {
            Some(name) => name,
            // We hold a sender.
            None => std::future::pending().await,
        }
    }
}

/// Dropped with its task, by a panic too.
struct End {
    name: &'static str,
    draining: CancellationToken,
    ended: mpsc::UnboundedSender<&'static str>,
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.draining.is_cancelled() {
            error!(task = self.name, "a task that the broker depends on has ended");
            // Without a receiver the broker has gone.
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
    async fn a_task_that_returns_or_panics_is_named() {
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
