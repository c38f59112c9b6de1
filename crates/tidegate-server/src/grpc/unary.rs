//! One message in, one message out.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use prost::Message;
use tonic::Status;

use super::body::AnswerBody;
use super::{MESSAGE_MAX, MESSAGE_TIME_MAX};

/// What precedes a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Reads the one message of a request.
pub(super) async fn read<M: Message + Default>(body: Incoming) -> Result<M, Status> {
    let bytes = tokio::time::timeout(MESSAGE_TIME_MAX, collect(body))
        .await
        .map_err(|_| Status::deadline_exceeded("the message took too long to come in"))??;
    decode(bytes)
}

/// All of a body, which nearly always comes in one piece.
async fn collect(mut body: Incoming) -> Result<Bytes, Status> {
    let mut all = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |error| Status::cancelled(format!("the request broke off: {error}"));
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if all.len() + joined.len() + data.len() > PREFIX + MESSAGE_MAX {
            return Err(Status::resource_exhausted(format!(
                "the message is larger than {MESSAGE_MAX} bytes"
            )));
        }
        if all.is_empty() && joined.is_empty() {
            all = data;
        } else {
            joined.extend_from_slice(&std::mem::take(&mut all));
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() { all } else { joined.freeze() })
}

fn decode<M: Message + Default>(mut bytes: Bytes) -> Result<M, Status> {
    if bytes.len() < PREFIX {
        return Err(Status::internal("the request holds no whole message"));
    }
    let is_compressed = bytes.get_u8() != 0;
    let length = bytes.get_u32() as usize;
    if is_compressed {
        return Err(Status::unimplemented("compressed messages are not understood"));
    }
    if length != bytes.len() {
        return Err(Status::internal(format!(
            "the request is not one whole message: it announces {length} bytes and has {}",
            bytes.len()
        )));
    }
    M::decode(bytes).map_err(|error| Status::internal(format!("the message is garbled: {error}")))
}

/// An answer of one message.
pub(super) fn write<M: Message>(message: &M) -> Response<AnswerBody> {
    let length = message.encoded_len();
    let Ok(announced) = u32::try_from(length) else {
        return Status::internal("the answer is too large").into_http();
    };
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(announced);
    message.encode_raw(&mut bytes);
    let mut response = Response::new(AnswerBody::Message(bytes.freeze()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
