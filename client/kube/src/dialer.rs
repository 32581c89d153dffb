//! What makes connections to API servers and proxies.

use credbroker_client::tls::Dialer;
use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tower::{Service, ServiceExt as _};

use crate::BoxError;

/// A connector of hyper-util as a dialer.
#[derive(Clone, Debug)]
pub(crate) struct HyperDialer<C>(pub(crate) C);

impl<C> Dialer for HyperDialer<C>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Read + Write + Send + Unpin + 'static,
    C::Error: Into<BoxError>,
    C::Future: Send,
{
    type Stream = TokioIo<C::Response>;

    async fn dial(&self, uri: Uri) -> Result<Self::Stream, BoxError> {
        Ok(TokioIo::new(self.0.clone().oneshot(uri).await.map_err(Into::into)?))
    }
}
