//! What one process does to the calls of another user, and how soon the broker is idle again.

use std::{
    collections::VecDeque,
    fs,
    io::Write as _,
    os::unix::{fs::PermissionsExt as _, net::UnixStream as StdUnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use credbroker_client::Socket;
use credbroker_lab::{
    channel::{channel, channel_as},
    daemon,
    report::{Report, figure, percentile, section},
};
use rustix::process::geteuid;
use tokio::runtime::Builder;

use crate::{
    credential::credential,
    floods,
    keys::{self, KEYS, OTHER, TOKEN_PLUGIN, request},
    subject::{Rpc, Subject},
};

const VICTIM: u32 = 61_001;
const ASKS: usize = 3_000;
/// How much worse the p99 of the victim may be.
const WORSE: Duration = Duration::from_millis(5);
/// Clock ticks (1/100 s) in a second, one second after an attack.
const IDLE: u64 = 5;
/// Connections that are open at a time, below the usual limit of open files.
const OPEN: usize = 800;
/// Calls in flight, each for another key.
const IN_FLIGHT: usize = 64;
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Attacks the broker at a socket until it has to stop.
type Attack = fn(&Path, &AtomicBool) -> Result<()>;

pub(crate) async fn measure(report: &mut Report, directory: &Path) -> Result<()> {
    section(&format!("GetCredential of another user during an attack, {ASKS} calls"));
    if !geteuid().is_root() {
        figure("SKIPPED", "only root can connect as another user");
        return Ok(());
    }
    let sections = format!(
        "listen: {{mode: \"0666\"}}\naccess:\n- name: all\n  peers: {{uids: [0, {VICTIM}]}}\n  \
         allow: {{providers: [\"*\"], verbs: [get]}}\n"
    );
    let subject = Subject::start(directory, TOKEN_PLUGIN, &(keys::providers(directory) + &sections)).await?;
    let bare = directory.join("bare");
    fs::create_dir(&bare)?;
    for path in [directory.parent().unwrap_or(directory), directory, &bare] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o711))?;
    }
    let bare = daemon::start_echo(&bare, &credential(&Socket::at(&subject.running.socket)).await?)?;
    fs::set_permissions(&bare.socket, fs::Permissions::from_mode(0o666))?;
    let socket = &subject.running.socket;
    let victim = Rpc::new(channel_as(VICTIM, socket).await?);
    let alone = p99(&victim).await?;
    figure("p99 alone", &millis(alone));
    let attacks: [(&str, Attack); 6] = [
        ("silent connections", connect),
        ("new keys", make_keys),
        ("requests of headers", floods::headers),
        ("unfinished requests", floods::parts),
        ("unread answers", floods::unread),
        ("denied calls", floods::denied),
    ];
    for (name, attack) in attacks {
        let before = subject.resident()?;
        let (meanwhile, more) = during(attack, socket, &victim, || subject.resident()).await?;
        let more = more.saturating_sub(before);
        let worse = meanwhile.saturating_sub(alone);
        figure(&format!("memory for {name}"), &format!("{} KiB", more / 1024));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let busy = ticks(subject.running.child.id())?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let busy = ticks(subject.running.child.id())?.saturating_sub(busy);
        let limit = format!("{IDLE}");
        report.limited(&format!("ticks in a second after {name}"), &busy.to_string(), &limit, busy <= IDLE);
        let rival = Rpc::new(channel_as(VICTIM, &bare.socket).await?);
        let (rival, _) = during(attack, &bare.socket, &rival, || Ok(0)).await?;
        figure(&format!("p99 of a bare tonic service during {name}"), &millis(rival));
        // The attacker has one of the cores: even the bare service may lose more.
        let limit = format!("{} more, or the bare service", millis(WORSE));
        let is_met = worse <= WORSE || meanwhile <= rival;
        report.limited(&format!("p99 during {name}"), &millis(meanwhile), &limit, is_met);
    }
    Ok(())
}

/// The p99 of `victim` during an attack on `socket`, and what `resident` says at its end.
async fn during(
    attack: Attack,
    socket: &Path,
    victim: &Rpc,
    resident: impl Fn() -> Result<u64>,
) -> Result<(Duration, u64)> {
    let (stop, socket) = (Arc::new(AtomicBool::new(false)), socket.to_owned());
    let attacking: JoinHandle<_> = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || attack(&socket, &stop))
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (meanwhile, resident) = (p99(victim).await, resident());
    stop.store(true, Ordering::Relaxed);
    attacking.join().ok().context("it panicked")??;
    Ok((meanwhile?, resident?))
}

async fn p99(rpc: &Rpc) -> Result<Duration> {
    let mut times = Vec::with_capacity(ASKS);
    for _ in 0..ASKS {
        let start = Instant::now();
        rpc.clone().get_credential(request(OTHER, 0)).await?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(percentile(&times, 99))
}

/// Opens connections, says hello on each, and makes no call.
fn connect(socket: &Path, stop: &AtomicBool) -> Result<()> {
    let mut open = VecDeque::with_capacity(OPEN);
    while !stop.load(Ordering::Relaxed) {
        if open.len() == OPEN {
            open.pop_front();
        }
        let mut stream = StdUnixStream::connect(socket)?;
        // The broker may have closed it.
        stream.write_all(HELLO).ok();
        open.push_back(stream);
    }
    Ok(())
}

/// Asks for one key after the other.
fn make_keys(socket: &Path, stop: &AtomicBool) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let rpc = Rpc::new(channel(socket).await?);
        let asking = (0..IN_FLIGHT).map(|first| {
            let mut rpc = rpc.clone();
            async move {
                for key in (first..).step_by(IN_FLIGHT) {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    // It may be refused.
                    rpc.get_credential(request(KEYS, key)).await.ok();
                }
            }
        });
        futures_util::future::join_all(asking).await;
        Ok(())
    })
}

/// The processor time of a process, in clock ticks.
fn ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let fields: Vec<_> = fields.split_whitespace().collect();
    let field =
        |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).context("a number");
    Ok(field(11)? + field(12)?)
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}
