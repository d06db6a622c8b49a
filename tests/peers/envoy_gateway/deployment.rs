//! The rate limit deployment of Envoy Gateway alone, with rules from the SnapshotCache of go-control-plane.

use super::{Network, Pod, eventually, pod::ENVIRONMENT};
use crate::{
    control_plane::{self, Plane},
    support::{certificates::Authority, http1},
};
use serde_json::Value;
use std::{fs, io::ErrorKind, net::Ipv4Addr, os::unix::fs::PermissionsExt as _, path::Path};

fn status(network: &Network, port: u16, path: &'static str) -> Option<u16> {
    let fetch = http1::fetch(Ipv4Addr::LOCALHOST, port, http::Request::get(path));
    network.block_on(fetch).ok().map(|answer| answer.status().as_u16())
}

/// The verdict on one hit, as `tidegate call --json` prints it; null if the call failed.
fn verdict(network: &Network, ca: &Path) -> Value {
    let route = "httproute/default/backend/rule/0";
    let entries = format!("{route}={route},rule-0-match-0=alice");
    let mut call = network.command(env!("CARGO_BIN_EXE_tidegate"));
    call.args(["call", "default/eg/http", &entries, "--json", "--addr", "localhost:8081", "--tls-ca"])
        .arg(ca);
    let called: Value = serde_json::from_slice(&call.output().unwrap().stdout).unwrap_or_default();
    called["overall"].clone()
}

async fn its_variables_alone_configure_a_server_as_its_user_on_a_read_only_root() {
    tokio::task::spawn_blocking(deploy).await.unwrap();
}

fn deploy() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let [hosts, certs, program] = ["hosts", "certs", "plane"].map(|name| folder.path().join(name));
    fs::write(&hosts, "127.0.0.1 localhost envoy-gateway\n").unwrap();
    fs::create_dir(&certs).unwrap();
    let (authority, ca) = (Authority::new("authority"), certs.join("ca.crt"));
    fs::write(&ca, &authority.pem).unwrap();
    authority.issue(&["envoy-gateway"]).write(&certs, "plane");
    authority.issue(&["localhost"]).write(&certs, "tls");
    control_plane::build(&program);

    let network = Network::new(&hosts);
    let mut plane = Plane::start(network.command(program.to_str().unwrap()), &certs, "127.0.0.1:18001");
    let pod = Pod::start(&network, &folder, &certs, &hosts, &[]);
    eventually("the probe of the deployment", || status(&network, 8080, "/healthcheck") == Some(200));
    plane.set("1", control_plane::rules(3, "HOUR"));
    eventually("an ACK", || !plane.lines("ack 1").is_empty());
    assert_eq!([(); 5].map(|()| verdict(&network, &ca)), ["OK", "OK", "OK", "OVER_LIMIT", "OVER_LIMIT"]);
    assert_eq!([status(&network, 19001, "/metrics"), status(&network, 6070, "/rlconfig")], [Some(200); 2]);

    let id = ["65534"; 4].join(" ");
    assert_eq!((pod.status("Uid"), pod.status("Gid")), (id.clone(), id));
    assert_eq!((pod.status("CapEff"), pod.status("NoNewPrivs")), ("0000000000000000".into(), "1".into()));
    let mut variables = pod.variables();
    variables.sort_unstable();
    let mut expected = ENVIRONMENT.map(|(name, _)| name);
    expected.sort_unstable();
    assert_eq!(variables, expected);
    let written = fs::write(pod.path("/file"), "");
    assert_eq!(written.map_err(|error| error.kind()), Err(ErrorKind::ReadOnlyFilesystem));
}

crate::tests_with! { CHROOT, CONTROL_PLANE: its_variables_alone_configure_a_server_as_its_user_on_a_read_only_root }
