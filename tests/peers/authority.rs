//! Clients with an `:authority` that is not the authority of a URI: Envoy sends the name of its cluster, and gRPC
//! libraries the path of a Unix socket.

use crate::{
    envoy_process::Envoy,
    support::{Server, descriptor, http1, rules_file},
};
use http::Request;
use prost::Message as _;
use std::{fs, net::Ipv4Addr, path::Path, process::Command};
use tidegate::api::pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code};

/// The name that Istio gives a cluster.
const CLUSTER: &str = "outbound|8081||tidegate.ns.svc.cluster.local";
/// The listener of the config that refuses requests without a decision.
const FAIL_CLOSED: u16 = 10001;

async fn a_cluster_named_by_istio_is_limited() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy");
    let rules = folder.join("rules.yaml");
    let server = Server::with_rules(&rules, &[]);
    let config = fs::read_to_string(folder.join("http.yaml")).expect("a config of deploy/envoy");
    let config = ["name: tidegate\n", "cluster_name: tidegate\n", "cluster_name: tidegate }"]
        .into_iter()
        .fold(config, |config, key| config.replace(key, &key.replace("tidegate", &format!("\"{CLUSTER}\""))));
    let envoy = Envoy::start_with(&config, server.address(), &[]).await;
    let response = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(FAIL_CLOSED), Request::get("/")).await;
    let response = response.expect("Envoy answers");
    assert_eq!(response.status(), 200);
    assert!(response.headers().contains_key("x-ratelimit-limit"), "{response:?}");
}

/// Makes one call of raw bytes, in and out as hexadecimal digits.
const CALL: &str = "
import grpc, sys
target, message = sys.argv[1], bytes.fromhex(sys.argv[2])
with grpc.insecure_channel(target) as channel:
    call = channel.unary_unary('/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit')
    print(call(message, timeout=10).hex())
";

async fn grpc_python_is_limited_over_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = format!("unix:{}", folder.path().join("tidegate.sock").display());
    let rules = rules_file(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: { unit: day, requests_per_unit: 1 }\n",
    );
    let rules = rules.path().to_str().expect("temporary paths are UTF-8");
    let _server = Server::start_on(&address, &["--rules", rules]);
    let request =
        RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor(&[("k", "v")])], hits_addend: 1 };
    let message: String = request.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    for expected in [Code::Ok, Code::OverLimit] {
        let called = Command::new("python3").args(["-c", CALL, &address, &message]).output();
        let called = called.expect("python3 can be run");
        assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
        let digits = called.stdout.trim_ascii();
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ASCII"), 16).expect("digits"))
            .collect();
        let response = RateLimitResponse::decode(&bytes[..]).expect("a response");
        assert_eq!(response.overall_code(), expected);
    }
}

pub mod envoy {
    use super::a_cluster_named_by_istio_is_limited;
    crate::tests_with! { ENVOY: a_cluster_named_by_istio_is_limited }
}

pub mod python {
    use super::grpc_python_is_limited_over_a_unix_socket;
    crate::tests_with! { PYTHON_GRPC: grpc_python_is_limited_over_a_unix_socket }
}
