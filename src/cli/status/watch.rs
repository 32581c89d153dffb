//! `credbroker status --watch`: a view that is drawn again every second.

use std::{
    collections::{HashMap, VecDeque},
    future::pending,
    io::Write,
    time::{Duration, SystemTime},
};

use credbroker_client::admin::{CredentialState, Selector, State};
use tokio::time::sleep;

use crate::app::Signals;
use crate::cli::{
    broker::{BrokerArgs, admin, connect},
    console::Console,
    overview::{Overview, table, title},
    screen::{Screen, Tone, shortened, wrapped},
};
use credbroker_credential::text::one_line;
use credbroker_observe::clock::{Clock as _, SystemClock};

const INTERVAL: Duration = Duration::from_secs(1);
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const MOST: usize = 200;

pub(super) fn run(broker: &BrokerArgs, selector: &Selector, console: &mut Console<'_>) -> anyhow::Result<u8> {
    let environment = console.environment;
    let socket = broker.socket.locate(environment);
    broker.ask(environment, async |mut client| {
        let mut signals = Signals::catch();
        let mut ended = async || match &mut signals {
            Ok(signals) => drop(signals.next().await),
            Err(_refused) => pending().await,
        };
        // A failure before the first frame ends the command.
        let mut last = Overview::read(&admin(&client, environment), selector).await?;
        let (mut runs, mut outage, mut view) = (Runs::default(), None, AlternateScreen::enter(console.out));
        while !view.is_gone {
            if outage.is_none() {
                runs.read(&last.credentials);
            }
            let screen = Screen::of_stdout(environment);
            view.draw(&frame(&last, &runs, outage.as_deref(), screen, SystemClock.now().wall), screen);
            let next = async {
                sleep(INTERVAL).await;
                if let (Some(_), Ok(socket)) = (&outage, &socket) {
                    client = connect(socket, broker.timeout).await?;
                }
                Overview::read(&admin(&client, environment), selector).await
            };
            let read = tokio::select! {
                () = ended() => return Ok(()),
                read = next => read,
            };
            match read {
                Ok(overview) => (last, outage) = (overview, None),
                Err(error) => outage = Some(one_line(&error.to_string())),
            }
        }
        Ok(())
    })?;
    Ok(0)
}

/// One picture. `lost`: why it is not of now.
fn frame(overview: &Overview, runs: &Runs, lost: Option<&str>, screen: Screen, now: SystemTime) -> String {
    let width = screen.width();
    let is_running = |held: &&CredentialState| {
        held.state == State::Waiting || (held.state == State::Refreshing && held.last_failure.is_none())
    };
    let in_flight = overview.credentials.iter().filter(is_running).count();
    let counts = format!(
        "{} credentials, {in_flight} running or waiting, {} runs since this view began",
        overview.credentials.len(),
        runs.total
    );
    let mut text = shortened(&title(&overview.broker, now), width) + "\n";
    if let Some(why) = lost {
        let line = wrapped(&format!("no answer from the broker: {why}; trying again"), 2, width);
        text.extend(line.lines().map(|line| screen.paint(Tone::Bad, line) + "\n"));
    }
    text.push_str(&wrapped(&counts, 0, width));
    text.extend(["runs  ", &runs.bars(width.saturating_sub(6)), "\n\n"]);
    let mut held: Vec<_> = overview.credentials.iter().collect();
    // Those without a credential come first: they fail, or are being fetched.
    held.sort_by_key(|held| held.expires_at);
    text.push_str(&table(&overview.rows(held, now), screen));
    text
}

/// The other screen of the terminal. The first one is shown again when this is dropped.
struct AlternateScreen<'a> {
    out: &'a mut dyn Write,
    is_gone: bool,
}

impl<'a> AlternateScreen<'a> {
    fn enter(out: &'a mut dyn Write) -> Self {
        let mut entered = Self { out, is_gone: false };
        entered.write("\x1b[?1049h\x1b[?25l");
        entered
    }

    /// Replaces the picture. Lines that do not fit are left out.
    fn draw(&mut self, frame: &str, screen: Screen) {
        let rows = screen.size.map_or(usize::MAX, |(_, rows)| rows).max(2);
        let (mut lines, count): (Vec<_>, _) = (frame.lines().take(rows).collect(), frame.lines().count());
        let more = format!("… {} more lines", (count + 1).saturating_sub(rows));
        if let (true, Some(last)) = (count > rows, lines.last_mut()) {
            *last = &more;
        }
        self.write(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")));
    }

    fn write(&mut self, text: &str) {
        self.is_gone |= self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).is_err();
    }
}

impl Drop for AlternateScreen<'_> {
    fn drop(&mut self) {
        self.write("\x1b[?25h\x1b[?1049l");
    }
}

#[derive(Debug, Default)]
struct Runs {
    /// Of each id, the runs until the last reading. `None`: there was no reading yet.
    known: Option<HashMap<String, u64>>,
    history: VecDeque<u64>,
    total: u64,
}

impl Runs {
    fn read(&mut self, credentials: &[CredentialState]) {
        let now: HashMap<_, _> = credentials.iter().map(|held| (held.id.clone(), held.runs)).collect();
        if let Some(known) = &self.known {
            // A credential that was evicted begins at 0 again.
            let before = |id: &String| known.get(id).copied().unwrap_or_default();
            let runs = now.iter().map(|(id, runs)| runs.checked_sub(before(id)).unwrap_or(*runs)).sum();
            self.history.push_back(runs);
            self.total += runs;
        }
        if self.history.len() > MOST {
            self.history.pop_front();
        }
        self.known = Some(now);
    }

    fn bars(&self, width: usize) -> String {
        let shown = self.history.iter().skip(self.history.len().saturating_sub(width));
        let most = shown.clone().copied().max().unwrap_or_default().max(1);
        let level = |runs: u64| match runs {
            0 => 0,
            runs => usize::try_from((runs * 7).div_ceil(most)).unwrap_or(7),
        };
        shown.filter_map(|runs| BARS.get(level(*runs))).collect()
    }
}

#[cfg(test)]
mod tests;
