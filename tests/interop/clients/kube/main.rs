//! A program with kube and its own support for exec plugins: a watcher, and one request for each line of standard input.
//!
//! `kube_exec KUBECONFIG CONTEXT NAMESPACE`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program prints")]

use std::{env, error::Error, io::stdin};

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Config, ResourceExt as _,
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tokio::runtime::Runtime;

fn main() -> Result<(), Box<dyn Error>> {
    let [file, context, namespace] = env::args()
        .skip(1)
        .collect::<Vec<_>>()
        .try_into()
        .map_err(|_other| "usage: KUBECONFIG CONTEXT NAMESPACE")?;
    let runtime = Runtime::new()?;
    let options = KubeConfigOptions { context: Some(context), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(file)?, &options);
    let client =
        runtime.block_on(async { Client::try_from(config.await?).map_err(Box::<dyn Error>::from) })?;
    runtime.spawn(follow(Api::namespaced(client.clone(), &namespace)));
    let namespaces: Api<Namespace> = Api::all(client);
    for _line in stdin().lines() {
        let line = match runtime.block_on(namespaces.get(&namespace)) {
            Ok(_) => json!({"status": 200}),
            Err(kube::Error::Api(answer)) => json!({"status": answer.code, "error": answer.message}),
            Err(error) => json!({"status": 0, "error": error.to_string()}),
        };
        println!("{line}");
    }
    Ok(())
}

async fn follow(objects: Api<ConfigMap>) {
    let mut objects =
        watcher(objects, watcher::Config::default()).default_backoff().applied_objects().boxed();
    loop {
        match objects.try_next().await {
            Ok(Some(object)) => println!("{}", json!({"seen": object.name_any()})),
            Ok(None) => return,
            Err(error) => eprintln!("watcher: {error}"),
        }
    }
}
