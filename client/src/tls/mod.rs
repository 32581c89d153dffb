//! Connections that follow a client certificate: the feature `rustls`.
//!
//! [`RotatingClient`] is an HTTP client with one connection pool and one rustls config for each certificate. When the
//! certificate changes, no old connection takes a new request; idle ones are closed, and the others are closed when they
//! become idle or at a deadline. A change of the token closes nothing.
//!
//! It sends no token: put [`Authenticate`](crate::Authenticate) around it.
//!
//! ```no_run
//! # async fn example(source: credbroker_client::CredentialSource, ca: &[u8]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use bytes::Bytes;
//! use credbroker_client::{Authenticate, tls::{RotatingClient, Settings}};
//! use http_body_util::Empty;
//! use tower::{Layer, Service};
//!
//! let settings = Settings::trusting(ca)?;
//! let client = RotatingClient::new(source.clone(), settings);
//! let mut service = Authenticate::new(source).layer(client);
//! let request = http::Request::get("https://paris.example:6443/version").body(Empty::<Bytes>::new())?;
//! let response = service.call(request).await?;
//! # Ok(())
//! # }
//! ```

mod body;
mod client;
mod connection;
mod connector;
mod dialer;
mod generation;
mod identity;
mod pem;
mod settings;
mod validity;

pub use body::ResponseBody;
pub use client::{RotatingClient, SendError};
pub use dialer::{Dialer, Tcp};
pub use settings::{Settings, SettingsError};

// Of credbroker-kube and credbroker's proxy. Not a part of the API.
#[doc(hidden)]
pub use connection::is_replaced;
#[doc(hidden)]
pub use dialer::tcp;
#[doc(hidden)]
pub use settings::{DRAIN, Drain};
