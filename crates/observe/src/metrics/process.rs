//! What the kernel says about this process, under the names of Prometheus' client libraries.

use std::{fs, time::Duration};

use rustix::{
    process::{Resource, getrlimit},
    time::{ClockId, clock_gettime},
};

use super::{ConstGauge, Exposition, families};

/// Adds the metrics of this process. Its plugins are other processes. What the kernel does not say is left out.
pub fn write_process(to: &mut Exposition) {
    if let Ok(used) = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)) {
        to.one(&families::PROCESSOR_TIME, ConstGauge::new(used.as_secs_f64()));
    }
    if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().and_then(|status| resident(&status)) {
        to.one(&families::MEMORY, ConstGauge::new(bytes));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is the directory itself.
        let open = u64::try_from(open.count()).unwrap_or(u64::MAX);
        to.one(&families::OPEN_FILES, ConstGauge::new(open.saturating_sub(1)));
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        to.one(&families::MOST_OPEN_FILES, ConstGauge::new(most));
    }
}

/// Resident bytes, from `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_the_process() {
        let mut to = Exposition::default();
        write_process(&mut to);
        let text = to.into_text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1024.0 * 1024.0);
        assert!((1.0..value("process_max_fds")).contains(&value("process_open_fds")));
        assert!(value("process_cpu_seconds_total") > 0.0);
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\n"), "{text}");
    }

    #[test]
    fn resident_memory_is_in_kibibytes() {
        assert_eq!(resident("Name:\tx\nVmRSS:\t    8 kB\nVmSwap:\t 1 kB\n"), Some(8192));
        assert_eq!(resident("VmRSS:\t-1 kB"), None);
        assert_eq!(resident(""), None);
    }
}
