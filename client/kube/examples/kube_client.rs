//! A kube client for one cluster of the fleet: `cargo run -p credbroker-kube --example kube_client`.
#![expect(clippy::print_stdout, reason = "a program prints")]

use std::error::Error;

use credbroker_client::{Broker, Reason};
use credbroker_kube::for_cluster_profile;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let paris = match for_cluster_profile(&Broker::from_env()?, "fleet", "paris").await {
        Ok(client) => client,
        Err(error) => match error.reason() {
            Some(Reason::InteractionRequired) => return Err("log in, then try again".into()),
            Some(Reason::UnknownClusterProfile) => return Err("the fleet has no cluster paris".into()),
            _ => return Err(error.into()),
        },
    };
    println!("Kubernetes {}", paris.apiserver_version().await?.git_version);
    Ok(())
}
