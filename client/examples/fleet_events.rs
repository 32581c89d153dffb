//! Prints the changes of the fleet: `cargo run -p credbroker-client --example fleet_events`.
#![expect(clippy::print_stdout, reason = "a program prints")]

use std::error::Error;

use credbroker_client::{Broker, ClusterEvent};
use futures_util::StreamExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let clusters = Broker::from_env()?.clusters();
    clusters.ready().await?;
    let mut events = clusters.events();
    while let Some(event) = events.next().await {
        match event {
            ClusterEvent::Added(cluster) => println!("{} added", cluster.profile),
            ClusterEvent::Changed(cluster) => println!("{} is {:?}", cluster.profile, cluster.readiness),
            ClusterEvent::Removed(cluster) => println!("{} removed", cluster.profile),
            _ => {}
        }
    }
    Ok(())
}
