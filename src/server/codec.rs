//! Messages that are sent as they were encoded.

use std::{fmt, marker::PhantomData};

use bytes::{BufMut as _, Bytes};
use prost::Message;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, EncodeBuf, Encoder},
};
use tonic_prost::ProstCodec;

use super::preencoded::HEAD;

/// A token and what goes with it; a buffer grows for a message that is larger. Each open watch keeps one for its whole
/// life, and tonic's own are of 8 KiB.
const BUFFER: usize = 2 * 1024;
/// When a buffer is sent although there is more to encode, as tonic does.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// Reads requests as prost does, and sends answers that are encoded already.
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

/// One copy, into the frame.
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
