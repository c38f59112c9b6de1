//! One message in, one message out.

use std::fmt::Display;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use prost::Message;
use tonic::Status;

use super::body::AnswerBody;
use super::{MESSAGE_MAX, MESSAGE_TIME_MAX};

/// What precedes a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Reads the one message of a request.
pub(super) async fn read<M, B>(body: B) -> Result<M, Status>
where
    M: Message + Default,
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let bytes = tokio::time::timeout(MESSAGE_TIME_MAX, collect(body))
        .await
        .map_err(|_| Status::deadline_exceeded("the message took too long to come in"))??;
    decode(bytes)
}

/// All of a body, which nearly always comes in one piece.
async fn collect<B>(mut body: B) -> Result<Bytes, Status>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let mut all = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broken = |error: B::Error| Status::cancelled(format!("the request broke off: {error}"));
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

#[cfg(test)]
mod tests {
    use http_body_util::{Channel, Full};
    use tokio::time::Instant;

    use super::*;

    async fn read_bytes(bytes: &'static [u8]) -> Result<String, Status> {
        read(Full::new(Bytes::from_static(bytes))).await
    }

    #[tokio::test]
    async fn one_whole_message_and_nothing_else() {
        assert_eq!(read_bytes(b"\0\0\0\0\x04\x0a\x02hi").await.ok().as_deref(), Some("hi"));
        for wrong in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x05\x0a\x02hi", b"\0\0\0\0\x03\x0a\x02hi"] {
            let status = read_bytes(wrong).await.expect_err("no message");
            assert_eq!(status.code(), tonic::Code::Internal, "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_never_ends_is_given_up() {
        let (mut sender, body) = Channel::<Bytes>::new(1);
        sender.send_data(Bytes::from_static(&[0, 0])).await.expect("room");
        let begin = Instant::now();
        let status = read::<String, _>(body).await.expect_err("no message");
        assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "{status}");
        assert_eq!(begin.elapsed(), MESSAGE_TIME_MAX);
        drop(sender);
    }

    #[tokio::test]
    async fn what_is_written_can_be_read() {
        let written = write(&"hi".to_owned());
        assert_eq!(written.headers()[CONTENT_TYPE], "application/grpc");
        let body = written.into_body().collect().await.expect("a body");
        assert_eq!(
            body.trailers().map(|it| &it["grpc-status"]),
            Some(&HeaderValue::from_static("0"))
        );
        let again: Result<String, Status> = read(Full::new(body.to_bytes())).await;
        assert_eq!(again.ok().as_deref(), Some("hi"));
    }
}
