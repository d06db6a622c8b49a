//! The unary methods by the types of their requests.

use super::{caller::Admitted, error::Error, for_each_method};
use crate::api::pb::control::{self as messages, control_client::ControlClient};
use prost::Message;
use tidegate_operations::control::Role;
use tonic::{Request, Response, Status, transport::Channel};

/// A message, by its name in the descriptors.
pub(crate) trait Named: Message {
    const NAME: &'static str;
}

/// The request of a method.
pub(crate) trait Method: Named + Default + 'static {
    type Response: Named;
    /// The name of the method.
    const METHOD: &'static str;
    /// The role that it needs.
    const ROLE: Role;

    /// Calls the method of a server.
    fn call(
        client: &mut ControlClient<Channel>,
        request: Request<Self>,
    ) -> impl Future<Output = Result<Response<Self::Response>, Status>>;
}

/// A request that this server handles.
pub(super) trait Handled: Method {
    fn handle(self, admitted: &Admitted) -> impl Future<Output = Result<Self::Response, Error>> + Send;
}

macro_rules! named {
    ($($name:ident)*) => {
        $(impl Named for messages::$name {
            const NAME: &'static str = stringify!($name);
        })*
    };
}
named!(Error TailRequest TailResponse);

macro_rules! methods {
    ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
        $(
            named!($request $response);

            impl Method for messages::$request {
                type Response = messages::$response;
                const METHOD: &'static str = stringify!($name);
                const ROLE: Role = Role::$role;

                async fn call(
                    client: &mut ControlClient<Channel>,
                    request: Request<Self>,
                ) -> Result<Response<Self::Response>, Status> {
                    client.$handler(request).await
                }
            }

            impl Handled for messages::$request {
                async fn handle(self, admitted: &Admitted) -> Result<Self::Response, Error> {
                    admitted.$handler(self).await
                }
            }
        )*
    };
}
for_each_method!(methods);
