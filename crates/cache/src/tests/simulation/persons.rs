//! Users: they attend runs, log in, and lend their terminals to plugins.

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use tokio::{sync::oneshot, time::sleep};

use super::{
    driver::World,
    keys::RequestKind,
    model::{Model, Shared},
    plugins::secs,
    requests::caller,
};
use crate::{Attendant, Caller, Request};
use credbroker_plugin::{Interactive, PluginSpec};
use credbroker_runner::{Attendance, Deposit, Lender, Offer, PluginCommand, RunError, RunErrorKind};

/// What a user does with a plugin in the terminal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Conduct {
    /// The user answers after this time, and the plugin ends with this exit code.
    Answers(Duration, i32),
    /// The plugin is not started.
    Refuses,
    /// The terminal is closed after this time.
    Closes(Duration),
}

impl Conduct {
    fn some() -> Self {
        let time = Duration::from_millis(fastrand::u64(100..45_000));
        match fastrand::u8(..8) {
            0 => Self::Refuses,
            1 => Self::Closes(time),
            2 => Self::Answers(time, 1),
            _ => Self::Answers(time, 0),
        }
    }
}

/// Runs the plugin in the terminal, if it is offered.
async fn lend(offered: oneshot::Receiver<Offer>, conduct: Conduct) {
    let Ok(Offer { deposit, .. }) = offered.await else { return pending().await };
    match conduct {
        Conduct::Answers(time, exit_code) => {
            sleep(time).await;
            drop(deposit.send(Deposit { stdout: b"{}".to_vec().into(), exit_code }));
        }
        Conduct::Refuses => {}
        Conduct::Closes(time) => {
            sleep(time).await;
            drop(deposit);
        }
    }
    pending::<()>().await;
}

impl World {
    /// A user at a terminal asks for a key whose plugin may need one.
    pub(super) fn person_asks(&self) {
        let key = self.some_key();
        if !self.catalog.plugins[self.catalog.plugin_of(key)].asks_persons() {
            return;
        }
        let request = Request {
            caller: Caller { at_terminal: true, ..caller() },
            deadline: Some(Duration::from_millis(fastrand::u64(1000..200_000))),
            attendant: (fastrand::u8(..4) > 0).then(|| Arc::new(Attendant::default())),
            is_login: fastrand::u8(..3) == 0,
            ..Request::default()
        };
        let lends = (fastrand::u8(..3) > 0).then(Conduct::some);
        let patience = (fastrand::u8(..4) == 0).then(|| Duration::from_millis(fastrand::u64(1..60_000)));
        let world = self.clone();
        self.tasks.spawn(async move { world.is_answered(key, request, lends, patience).await });
    }

    /// Waits for the answer to a user. Returns whether it is a credential.
    pub(super) async fn is_answered(
        &self,
        key: usize,
        request: Request,
        lends: Option<Conduct>,
        patience: Option<Duration>,
    ) -> bool {
        let (lender, offered) = Lender::new(7);
        let request = Request { lender: lends.map(|_| lender), ..request };
        let kind = if request.is_login { RequestKind::Login } else { RequestKind::Get };
        let asked = self.asks(key, kind, &request);
        let leaves = async {
            match patience {
                Some(patience) => sleep(patience).await,
                None => pending().await,
            }
        };
        let lending = async {
            match lends {
                Some(conduct) => lend(offered, conduct).await,
                None => pending().await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = self.with_room(key, request.caller.peer, self.cache.get(self.catalog.spec(key), &request)) => Some(answer),
            () = leaves => None,
            () = lending => None,
        };
        let mut model = self.model.lock().unwrap();
        match &answer {
            Some(answer) if !self.draining.is_cancelled() => {
                model.judge(asked, answer);
                if let Ok(issued) = answer {
                    model.was_given(key, request.caller.name, issued.generation.to_string());
                }
            }
            _ => model.leaves(asked),
        }
        answer.is_some_and(|answer| answer.is_ok())
    }

    /// At the end, each key can be had by a login.
    pub(super) async fn logs_in(&self, key: usize) -> bool {
        let request = Request {
            caller: Caller { at_terminal: true, ..Caller::default() },
            deadline: Some(secs(150)),
            attendant: Some(Arc::new(Attendant::default())),
            is_login: true,
            ..Request::default()
        };
        self.is_answered(key, request, Some(Conduct::Answers(secs(1), 0)), None).await
    }
}

/// Lets a user use the plugin of `spec`, which needs one; `takes`: how long a login takes with a user.
pub(super) async fn asks_person(
    model: &Shared,
    spec: &PluginSpec,
    attendance: &Attendance,
    takes: Duration,
) -> Result<(), RunError> {
    let command: Arc<str> = "fake".into();
    if let Some(lender) = &attendance.lender {
        let leased =
            PluginCommand { program: "/fake".into(), args: Vec::new(), environment: BTreeMap::default() };
        return attendance.lease(lender, command, leased, &spec.provider).await.map(drop);
    }
    if spec.provider.interactive == Interactive::Always {
        return Err(RunError::new(command, RunErrorKind::NeedsTerminal));
    }
    attendance.started(&spec.provider);
    let login = async {
        let mut left = takes;
        while !left.is_zero() {
            sleep(secs(1)).await;
            if attendance.is_attended() {
                left = left.saturating_sub(secs(1));
            }
        }
    };
    let limit = tokio::select! {
        biased;
        () = login => return Ok(()),
        limit = attendance.used_up() => limit,
    };
    model.lock().unwrap().event(|| format!("a prompt has no answer in {limit:?}"));
    Err(RunError {
        stderr: "enter a code".into(),
        ..RunError::new(command, RunErrorKind::Timeout(limit, "timeout"))
    })
}

impl Model {
    /// Whether the next run of `key` needs a user, and how long a login takes.
    pub(super) fn needs_person(&mut self, key: usize, has_terminal: bool) -> Option<Duration> {
        let known = &mut self.keys[key];
        let interactive = self.catalog.plugins[known.plugin].interactive;
        let is_silent = known.renewals > 0;
        known.renewals = known.renewals.saturating_sub(1);
        match interactive {
            Interactive::Never => None,
            // It refreshes what a user has logged in for, a few times.
            _ if is_silent && !has_terminal => None,
            Interactive::IfAvailable | Interactive::Always => {
                known.renewals = known.random.0.usize(..4);
                Some(Duration::from_millis(known.random.0.u64(500..45_000)))
            }
        }
    }
}
