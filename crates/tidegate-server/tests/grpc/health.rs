//! Health and reflection.

use std::time::Duration;

use prost::Message as _;
use tidegate_proto::Code::Ok as Fine;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_health::pb::health_check_response::ServingStatus::{self, NotServing, Serving};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

use crate::support::{DEADLINE, Running, Setup, ask, domain};

const RULES: &str = "  - { key: user, rate_limit: { requests_per_unit: 9, unit: minute } }\n";
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

async fn check(client: &mut HealthClient<Channel>, name: &str) -> Result<ServingStatus, Status> {
    let asked = HealthCheckRequest { service: name.into() };
    client.check(asked).await.map(|response| response.into_inner().status())
}

fn status(message: Option<Result<HealthCheckResponse, Status>>) -> Option<ServingStatus> {
    message.map(|message| message.unwrap().status())
}

#[tokio::test]
async fn well_until_it_is_about_to_end() {
    let mut setup = Setup::new(&domain(RULES));
    setup.config.drain_delay = Duration::from_secs(3600);
    let running = setup.start().await;
    let channel = running.channel().await;
    let mut health = HealthClient::new(channel);
    for name in NAMES {
        assert_eq!(check(&mut health, name).await.unwrap(), Serving, "{name}");
    }
    assert_eq!(check(&mut health, "other").await.unwrap_err().code(), Code::NotFound);

    let mut client = running.client().await;
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(status(watch.next().await), Some(Serving));
    // It waits an hour before it begins to turn anybody away.
    let draining = tokio::spawn(running.server.drain());
    assert_eq!(status(watch.next().await), Some(NotServing));
    for name in NAMES {
        assert_eq!(check(&mut health, name).await.unwrap(), NotServing, "{name}");
    }
    assert_eq!(ask(&mut client, &["user=ada"]).await.overall_code(), Fine, "all else goes on");
    draining.abort();
}

#[tokio::test]
async fn those_who_watch_do_not_keep_it_from_ending() {
    let running = Running::with(RULES).await;
    let mut health = HealthClient::new(running.channel().await);
    let unknown = HealthCheckRequest { service: "other".into() };
    let mut unknown = health.watch(unknown).await.unwrap().into_inner();
    assert_eq!(status(unknown.next().await), Some(ServingStatus::ServiceUnknown));
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(status(watch.next().await), Some(Serving));
    let drained = tokio::time::timeout(DEADLINE, running.server.drain()).await;
    assert!(drained.unwrap(), "nothing was left under way");
    assert_eq!(status(watch.next().await), Some(NotServing));
    assert_eq!(status(watch.next().await), None);
    assert_eq!(status(unknown.next().await), None);
}

async fn reflect(
    client: &mut ServerReflectionClient<Channel>,
    asked: MessageRequest,
) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(asked) };
    let stream = client.server_reflection_info(tokio_stream::once(request)).await.unwrap();
    let answer: ServerReflectionResponse = stream.into_inner().next().await.unwrap().unwrap();
    answer.message_response.unwrap()
}

#[tokio::test]
async fn reflection_tells_what_can_be_asked() {
    let running = Running::with(RULES).await;
    let mut client = ServerReflectionClient::new(running.channel().await);
    let MessageResponse::ListServicesResponse(list) =
        reflect(&mut client, MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list")
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }

    let symbol = "envoy.service.ratelimit.v3.RateLimitRequest".to_owned();
    let MessageResponse::FileDescriptorResponse(files) =
        reflect(&mut client, MessageRequest::FileContainingSymbol(symbol)).await
    else {
        panic!("no file")
    };
    let file =
        prost_types::FileDescriptorProto::decode(&files.file_descriptor_proto[0][..]).unwrap();
    assert_eq!(file.package(), "envoy.service.ratelimit.v3");
    // What it needs can be had, too.
    for needed in file.dependency {
        let answer = reflect(&mut client, MessageRequest::FileByFilename(needed.clone())).await;
        assert!(matches!(answer, MessageResponse::FileDescriptorResponse(_)), "{needed}");
    }
}
