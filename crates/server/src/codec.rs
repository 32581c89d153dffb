//! A codec that sends messages which are already encoded.

use std::{fmt, marker::PhantomData};

use bytes::{BufMut as _, Bytes};
use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstCodec;

use super::preencoded::HEAD;

/// Initial size in bytes of an encoding buffer, enough for most credentials; it grows for a larger message. Each open
/// watch keeps one buffer, and tonic's default is 8 KiB.
const BUFFER: usize = 2 * 1024;
/// Bytes after which a buffer is sent although there is more to encode. The same as tonic's default.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// Decodes requests with prost, and sends answers that are already encoded.
pub(super) struct Encoded<T>(PhantomData<T>);

impl<T> Default for Encoded<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for Encoded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoded")
    }
}

impl<T: Message + Default + Send + 'static> Codec for Encoded<T> {
    type Encode = Bytes;
    type Decode = T;
    type Encoder = Copy;
    type Decoder = <ProstCodec<(), T> as Codec>::Decoder;

    fn encoder(&mut self) -> Copy {
        Copy
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<(), T>::raw_decoder(settings())
    }
}

/// Copies an encoded message into the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy;

impl Encoder for Copy {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, frame: &mut EncodeBuf<'_>) -> Result<(), Status> {
        frame.put(message.slice(HEAD.min(message.len())..)); // tonic writes the head
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER, YIELD_THRESHOLD)
}
