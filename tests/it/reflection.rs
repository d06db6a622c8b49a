//! Reflection: a client without a proto file finds the services and can build the messages.

use crate::support::Server;
use prost::Message;
use prost_types::FileDescriptorProto;
use std::collections::BTreeSet;
use tokio_stream::StreamExt;
use tonic::Streaming;

const RATE_LIMIT_SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";

/// Requests of a reflection client in the order of `grpcurl`: the services, then the files of a service, then their imports.
macro_rules! discover {
    ($version:ident, $server:expr) => {{
        use tonic_reflection::pb::$version::{
            ServerReflectionRequest, ServerReflectionResponse,
            server_reflection_client::ServerReflectionClient, server_reflection_request::MessageRequest,
            server_reflection_response::MessageResponse,
        };
        let mut client = ServerReflectionClient::new($server.channel().await);
        let mut discovered = Discovered::default();
        let mut questions = vec![
            MessageRequest::ListServices(String::new()),
            MessageRequest::FileContainingSymbol(RATE_LIMIT_SERVICE.into()),
            MessageRequest::FileContainingSymbol("grpc.health.v1.Health".into()),
        ];
        while let Some(question) = questions.pop() {
            let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
            let answers =
                client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
            let answer: ServerReflectionResponse = only(answers).await;
            match answer.message_response.expect("an answer") {
                MessageResponse::ListServicesResponse(list) => {
                    discovered.services.extend(list.service.into_iter().map(|service| service.name));
                }
                MessageResponse::FileDescriptorResponse(found) => {
                    for file in discovered.take(&found.file_descriptor_proto) {
                        questions.push(MessageRequest::FileByFilename(file));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        discovered
    }};
}

/// Services and files that were found.
#[derive(Default)]
struct Discovered {
    services: BTreeSet<String>,
    files: Vec<FileDescriptorProto>,
}

impl Discovered {
    /// Adds files; returns the names of imported files that are still missing.
    fn take(&mut self, encoded: &[Vec<u8>]) -> Vec<String> {
        let decode =
            |bytes: &Vec<u8>| FileDescriptorProto::decode(bytes.as_slice()).expect("a file descriptor");
        let new: Vec<_> = encoded.iter().map(decode).collect();
        let imports: Vec<String> = new.iter().flat_map(|file| file.dependency.clone()).collect();
        self.files.extend(new);
        let is_here = |name: &String| self.files.iter().any(|file| file.name() == name);
        imports.into_iter().filter(|name| !is_here(name)).collect()
    }

    fn has_method(&self, service: &str, method: &str) -> bool {
        let services = self.files.iter().flat_map(|file| &file.service);
        services
            .filter(|found| found.name() == service)
            .flat_map(|found| &found.method)
            .any(|found| found.name() == method)
    }

    fn has_message_with_field(&self, message: &str, field: &str) -> bool {
        let messages = self.files.iter().flat_map(|file| &file.message_type);
        messages
            .filter(|found| found.name() == message)
            .flat_map(|found| &found.field)
            .any(|found| found.name() == field)
    }
}

async fn only<T>(mut answers: Streaming<T>) -> T {
    answers.next().await.expect("one answer").expect("not a refusal")
}

fn assert_enough_to_call(discovered: &Discovered, reflection: &str) {
    let services: Vec<&str> = discovered.services.iter().map(String::as_str).collect();
    for service in [RATE_LIMIT_SERVICE, "grpc.health.v1.Health", reflection] {
        assert!(services.contains(&service), "{service} is not listed in {services:?}");
    }
    assert!(discovered.has_method("RateLimitService", "ShouldRateLimit"));
    assert!(discovered.has_method("Health", "Watch"));
    // The request, and messages that it imports from two other packages.
    assert!(discovered.has_message_with_field("RateLimitRequest", "descriptors"));
    assert!(discovered.has_message_with_field("RateLimitDescriptor", "is_negative_hits"));
    assert!(
        discovered
            .files
            .iter()
            .any(|file| file.enum_type.iter().any(|found| found.name() == "RateLimitUnit"))
    );
}

#[tokio::test]
async fn version_1_lists_and_describes_the_services() {
    let server = Server::start(&[]);
    assert_enough_to_call(&discover!(v1, server), "grpc.reflection.v1.ServerReflection");
}

#[tokio::test]
async fn version_1_alpha_lists_and_describes_the_services() {
    let server = Server::start(&[]);
    assert_enough_to_call(&discover!(v1alpha, server), "grpc.reflection.v1alpha.ServerReflection");
}
