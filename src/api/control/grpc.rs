//! The control API over gRPC.

use super::{caller::ControlApi, for_each_method};
use crate::{
    api::{
        pb::control::{self as messages, control_server},
        port::RoutedPeer,
    },
    control::Caller,
};
use tonic::{Request, Response, Status};

/// The service.
pub(in crate::api) struct GrpcControl(pub(in crate::api) ControlApi);

impl GrpcControl {
    fn admit<M>(&self, request: &Request<M>, method: &str) -> Result<Caller, Status> {
        let peer = request.extensions().get::<RoutedPeer>();
        let peer = peer.map_or("", |RoutedPeer(peer)| peer);
        let headers = request.metadata().clone().into_headers();
        Ok(self.0.admit(&headers, peer, method)?)
    }
}

macro_rules! service {
    ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
        #[tonic::async_trait]
        impl control_server::Control for GrpcControl {
            $(async fn $handler(
                &self,
                request: Request<messages::$request>,
            ) -> Result<Response<messages::$response>, Status> {
                let caller = self.admit(&request, stringify!($name))?;
                Ok(Response::new(self.0.$handler(&caller, request.into_inner()).await?))
            })*
        }
    };
}
for_each_method!(service);
