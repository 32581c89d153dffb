//! The cluster that a person requests a credential for: that of a context, or from flags.

use std::path::PathBuf;

use anyhow::Context as _;
use credbroker_client::Cluster;

use credbroker_config as config;
use credbroker_config::kubeconfig::Kubeconfig;
use credbroker_credential as credential;
use credbroker_plugin::Environment;

/// The cluster that the plugin receives, for providers with provideClusterInfo
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster, for plugins that receive it (provideClusterInfo)")]
pub(super) struct ClusterArgs {
    /// Cluster of this context in a kubeconfig
    #[arg(long, value_name = "NAME", conflicts_with = "server")]
    context: Option<String>,
    /// Kubeconfig of --context [default: those of KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// URL of its API server
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// PEM file of its certificate authorities
    #[arg(long, value_name = "FILE", requires = "server")]
    certificate_authority: Option<PathBuf>,
    /// Name in its server certificate, if it is not the host of the URL
    #[arg(long, value_name = "NAME", requires = "server")]
    tls_server_name: Option<String>,
    /// Do not verify its server certificate
    #[arg(long, requires = "server")]
    insecure_skip_tls_verify: bool,
    /// Proxy for requests to it
    #[arg(long, value_name = "URL", requires = "server")]
    proxy_url: Option<String>,
    /// Do not request compressed responses from it
    #[arg(long, requires = "server")]
    disable_compression: bool,
    /// Its extension client.authentication.k8s.io/exec
    #[arg(long, value_name = "JSON", requires = "server")]
    exec_config: Option<String>,
}

impl ClusterArgs {
    /// The cluster. `None`: the arguments name none.
    pub(super) fn read(&self, environment: &Environment) -> anyhow::Result<Option<Cluster>> {
        if let Some(context) = &self.context {
            let (paths, mode) = Kubeconfig::chosen(self.kubeconfig.as_deref(), environment);
            return Ok(Some(message(config::read_kubeconfig(&paths, mode)?.cluster_of(context)?)));
        }
        let Some(server) = &self.server else { return Ok(None) };
        let authorities = self
            .certificate_authority
            .as_ref()
            .map(|path| config::authorities(path).with_context(|| format!("cannot read {}", path.display())));
        let mut cluster = Cluster::at(server);
        cluster.certificate_authority_data = authorities.transpose()?;
        cluster.tls_server_name.clone_from(&self.tls_server_name);
        cluster.insecure_skip_tls_verify = self.insecure_skip_tls_verify;
        cluster.proxy_url.clone_from(&self.proxy_url);
        cluster.disable_compression = self.disable_compression;
        cluster.config = self.exec_config.clone().map(String::into_bytes);
        Ok(Some(cluster))
    }
}

fn message(cluster: credential::Cluster) -> Cluster {
    let credential::Cluster {
        server,
        tls_server_name,
        insecure_skip_tls_verify,
        certificate_authority_data,
        proxy_url,
        disable_compression,
        config,
    } = cluster;
    let bytes = |bytes: bytes::Bytes| Some(bytes.to_vec()).filter(|bytes| !bytes.is_empty());
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let mut message = Cluster::at(server);
    message.tls_server_name = text(tls_server_name);
    message.insecure_skip_tls_verify = insecure_skip_tls_verify;
    message.certificate_authority_data = bytes(certificate_authority_data);
    message.proxy_url = text(proxy_url);
    message.disable_compression = disable_compression;
    message.config = bytes(config);
    message
}

#[cfg(test)]
mod tests;
