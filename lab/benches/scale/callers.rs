//! What the broker holds for each caller that it remembers.

use anyhow::Result;
use credbroker_lab::{memory::kib, report::Report};
use credbroker_proto::v1::ExecPluginCaller;

use crate::{
    keys::{KEYS, request},
    subject::Subject,
};

const CALLERS: (usize, usize) = (100, 1_000);
/// 16 bytes, and a tenth for the allocator.
const LIMIT: f64 = 17.6;
/// Bytes of a name that is as long as it may be, and how many there are.
const HOSTILE: (usize, usize) = (250 * 1024, 200);
const HOSTILE_LIMIT: u64 = 512 * 1024;

pub(crate) async fn measure(report: &mut Report, subject: &Subject) -> Result<()> {
    let ask = async |key, caller: String| {
        let mut asked = request(KEYS, key);
        asked.exec_plugin_caller = Some(ExecPluginCaller { id: caller, without_exec_info: false });
        subject.rpc.clone().get_credential(asked).await
    };
    let (keys, each) = CALLERS;
    for caller in 0..each {
        ask(0, format!("first {caller}")).await?;
    }
    let before = subject.resident()?;
    for key in 1..=keys {
        for caller in 0..each {
            ask(key, format!("caller {caller}")).await?;
        }
    }
    let grown = subject.resident()?.saturating_sub(before);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 bytes")]
    let bytes = grown as f64 / (keys * each) as f64;
    let name = format!("a caller that is remembered, of {}", keys * each);
    let (value, limit) = (format!("{bytes:.1} bytes"), format!("{LIMIT} bytes"));
    report.limited(&name, &value, &limit, bytes <= LIMIT);

    let (length, count) = HOSTILE;
    let hostile = |number: usize| format!("{}{number}", "x".repeat(length));
    ask(0, hostile(count)).await?;
    let before = subject.resident()?;
    for number in 0..count {
        ask(0, hostile(number)).await?;
    }
    let grown = subject.resident()?.saturating_sub(before);
    let name = format!("{count} callers with names of {} KiB, together", length / 1024);
    report.limited(&name, &kib(grown), &kib(HOSTILE_LIMIT), grown <= HOSTILE_LIMIT);
    Ok(())
}
