//! The address of a store: the store itself, Sentinels that name its primary, or nodes of a cluster.

use crate::without_userinfo;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};
use std::{fmt, str::FromStr};

/// The address of a store, with user, password and database.
#[derive(Clone)]
pub enum StoreAddress {
    /// One store.
    One(ConnectionInfo),
    /// The primary of a group that Sentinels watch.
    Sentinels {
        /// The Sentinels. The first that names a reachable primary decides, and is queried first from then on.
        sentinels: Vec<ConnectionInfo>,
        /// The name of the group.
        group: String,
        /// User, password and database of the primary.
        redis: RedisConnectionInfo,
    },
    /// Nodes of a cluster, with user and password. Each returns the addresses of all.
    Cluster(Vec<ConnectionInfo>),
}

impl StoreAddress {
    /// Sets the password.
    pub fn with_password(self, password: &str) -> Self {
        match self {
            Self::One(one) => {
                let redis = one.redis_settings().clone().set_password(password);
                Self::One(one.set_redis_settings(redis))
            }
            Self::Sentinels { sentinels, group, redis } => {
                Self::Sentinels { sentinels, group, redis: redis.set_password(password) }
            }
            Self::Cluster(nodes) => {
                let with_password = |node: ConnectionInfo| {
                    let redis = node.redis_settings().clone().set_password(password);
                    node.set_redis_settings(redis)
                };
                Self::Cluster(nodes.into_iter().map(with_password).collect())
            }
        }
    }
}

/// Reads the address of a store.
///
/// - `redis://` and `rediss://` (TLS): host, port, user, password and database.
/// - `unix:`: the path of a socket.
/// - `redis+sentinel://` and `rediss+sentinel://`: a list of hosts and ports, then the name of the group as the path. Optional: the
///   database, and `?sentinel_auth=user:password` of the Sentinels.
/// - `redis+cluster://` and `rediss+cluster://`: a list of hosts and ports.
impl FromStr for StoreAddress {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once(':').unwrap_or((url, ""));
        match scheme {
            "redis" | "rediss" => parse(url).map(Self::One),
            "unix" => {
                let address = parse(&format!("unix://{}", rest.trim_start_matches("//")))?;
                match address.addr() {
                    ConnectionAddr::Unix(path) if !path.is_absolute() => {
                        Err("the path of the socket is not absolute".to_owned())
                    }
                    _ => Ok(Self::One(address)),
                }
            }
            "redis+sentinel" => sentinels("redis", rest),
            "rediss+sentinel" => sentinels("rediss", rest),
            "redis+cluster" => cluster("redis", rest),
            "rediss+cluster" => cluster("rediss", rest),
            _ if is_host_and_port(url) => Err(format!("write redis://{}", without_userinfo(url))),
            _ => Err("write redis://host:port, rediss://host:port, redis+sentinel://host:port/group, \
                 redis+cluster://host:port,host:port or unix:/path"
                .to_owned()),
        }
    }
}

/// Whether the text is an address without its scheme.
fn is_host_and_port(text: &str) -> bool {
    let port = text.rsplit_once(':').map(|(host, port)| (!host.is_empty(), port.parse::<u16>()));
    matches!(port, Some((true, Ok(_)))) && !text.contains('/')
}

fn parse(url: &str) -> Result<ConnectionInfo, String> {
    url.into_connection_info().map_err(|error| error.to_string())
}

fn sentinels(scheme: &str, rest: &str) -> Result<StoreAddress, String> {
    const FORM: &str = "write redis+sentinel://host:port,host:port/group";
    let (rest, of_sentinels) = rest.split_once("?sentinel_auth=").unwrap_or((rest, ""));
    let (authority, path) = rest.trim_start_matches("//").split_once('/').ok_or(FORM)?;
    let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
    let (group, database) = path.split_once('/').unwrap_or((path, "0"));
    if group.is_empty() || hosts.is_empty() {
        return Err(FORM.to_owned());
    }
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:26379"),
    };
    let of_sentinels = match of_sentinels {
        "" => String::new(),
        auth if auth.contains(':') => format!("{auth}@"),
        password => format!(":{password}@"),
    };
    let sentinels =
        hosts.split(',').map(|host| parse(&format!("{scheme}://{of_sentinels}{}", with_port(host))));
    let of_primary =
        parse(&format!("redis://{user}{}primary/{database}", if user.is_empty() { "" } else { "@" }))?;
    Ok(StoreAddress::Sentinels {
        sentinels: sentinels.collect::<Result<_, _>>()?,
        group: group.to_owned(),
        redis: of_primary.redis_settings().clone(),
    })
}

fn cluster(scheme: &str, rest: &str) -> Result<StoreAddress, String> {
    let rest = rest.trim_start_matches("//");
    let (user, hosts) = rest.rsplit_once('@').map_or(("", rest), |(user, hosts)| (user, hosts));
    let hosts = hosts.trim_end_matches('/');
    if hosts.is_empty() || hosts.contains('/') {
        return Err("write redis+cluster://host:port,host:port; a cluster has one database".to_owned());
    }
    let at = if user.is_empty() { "" } else { "@" };
    let nodes = hosts.split(',').map(|host| parse(&format!("{scheme}://{user}{at}{host}")));
    Ok(StoreAddress::Cluster(nodes.collect::<Result<_, _>>()?))
}

/// Prints neither user nor password.
impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => write!(f, "{}", one.addr()),
            Self::Sentinels { sentinels, group, .. } => {
                write!(f, "{group} of")?;
                sentinels.iter().try_for_each(|sentinel| write!(f, " {}", sentinel.addr()))
            }
            Self::Cluster(nodes) => {
                write!(f, "cluster of")?;
                nodes.iter().try_for_each(|node| write!(f, " {}", node.addr()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_store_is_a_url_or_the_path_of_a_socket() {
        let shown = |url: &str| url.parse::<StoreAddress>().map(|address| address.to_string());
        assert_eq!(shown("redis://user:word@store.example/3").as_deref(), Ok("store.example:6379"));
        assert_eq!(shown("rediss://store.example:7000").as_deref(), Ok("store.example:7000"));
        assert_eq!(shown("unix:/run/store.sock").as_deref(), Ok("/run/store.sock"));
        assert_eq!(shown("unix:///run/store.sock").as_deref(), Ok("/run/store.sock"));
        let shown_sentinels = shown("redis+sentinel://user:word@a.example,b.example:7000/main/2");
        assert_eq!(shown_sentinels.as_deref(), Ok("main of a.example:26379 b.example:7000"));
        let shown_cluster = shown("redis+cluster://:word@a.example,b.example:7000");
        assert_eq!(shown_cluster.as_deref(), Ok("cluster of a.example:6379 b.example:7000"));
        for refused in [
            "unix:store.sock",
            "store.example:6379",
            "http://store.example",
            "redis+cluster://",
            "redis+cluster://a,b/1",
            "redis+sentinel://a.example",
            "redis+sentinel:///main",
            "",
        ] {
            assert!(shown(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn no_error_shows_a_password() {
        for refused in [
            "u:PW@host:6379",
            "PW@host:6379",
            "redis:u:PW@host",
            "redis://u:PW@host:port",
            "redis://u:PW@host/db",
            "redis://u:P/W@host:6379",
            "redis+sentinel://u:PW@host",
            "redis+sentinel://u:PW@host:x y/main",
            "redis+cluster://u:PW@host/1",
            "unix:run.sock?pass=PW",
            "http://u:PW@host",
        ] {
            let Err(error) = refused.parse::<StoreAddress>() else { continue };
            assert!(!error.contains("PW") && !error.contains("P/W"), "{refused}: {error}");
        }
        assert_eq!(
            "u:PW@host:6379".parse::<StoreAddress>().err().as_deref(),
            Some("write redis://…@host:6379")
        );
    }

    #[test]
    fn user_password_and_database_of_a_group_are_those_of_its_primary() {
        let Ok(StoreAddress::Sentinels { redis, .. }) = "redis+sentinel://user:word@a/main/2".parse() else {
            panic!("an address of Sentinels");
        };
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("user"), Some("word"), 2));
    }

    #[test]
    fn sentinels_have_a_user_and_a_password_of_their_own() {
        for (auth, user) in [("watch:w%40rd", Some("watch")), ("w%40rd", None)] {
            let url = format!("redis+sentinel://user:word@a,b/main/2?sentinel_auth={auth}");
            let Ok(StoreAddress::Sentinels { sentinels, redis, .. }) = url.parse() else {
                panic!("an address of Sentinels");
            };
            for sentinel in sentinels {
                let settings = sentinel.redis_settings();
                assert_eq!((settings.username(), settings.password()), (user, Some("w@rd")));
            }
            assert_eq!((redis.password(), redis.db()), (Some("word"), 2));
        }
    }
}
